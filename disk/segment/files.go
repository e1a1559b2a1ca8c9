package segment

import (
	"sync"

	"lockstep/disk"
)

// files opens files when they are needed and keeps at most max of them open,
// closing those that were used longest ago. Files in use are not closed, so
// that more than max may be open while more than max are in use.
type files struct {
	fs  disk.FS
	max int

	mu   sync.Mutex
	open int
	lru  handle // ring of open handles; next is the latest used
	// lostDirty is set when a file was closed that has unsynced data. Only a SyncAll covers that data, and only
	// that tells of an error in writing it back.
	lostDirty bool
}

// handle is a file that may be open. Its fields are guarded by files.mu.
type handle struct {
	file       disk.File // nil if closed
	refs       int32
	dirty      bool // has data that no round of sync covers yet
	doomed     bool // to be closed when nobody uses it any more
	prev, next *handle
}

func newFiles(fs disk.FS, max int) *files {
	c := &files{fs: fs, max: max}
	c.lru.prev, c.lru.next = &c.lru, &c.lru
	return c
}

// acquire returns the open file of a segment's handle, which stays open until release.
func (c *files) acquire(h *handle, seg *segment, ext string, flag disk.Flag) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file == nil {
		f, err := c.fs.Open(seg.name(ext), flag)
		if err != nil {
			return nil, err
		}
		h.file, h.doomed = f, false
		c.open++
	} else {
		h.unlink()
	}
	h.link(&c.lru)
	h.refs++
	c.shrink()
	return h.file, nil
}

// hold is acquire if the file is open.
func (c *files) hold(h *handle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file == nil {
		return false
	}
	h.refs++
	return true
}

// release undoes one acquire.
func (c *files) release(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.refs--
	if h.doomed && h.refs == 0 {
		c.close(h)
	}
	c.shrink()
}

// drop closes a file that is deleted, as soon as nobody uses it.
func (c *files) drop(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.dirty = false
	switch {
	case h.file == nil:
	case h.refs == 0:
		c.close(h)
	default:
		h.doomed = true
	}
}

func (c *files) setDirty(h *handle) {
	c.mu.Lock()
	h.dirty = true
	c.mu.Unlock()
}

// clean says that a round of sync takes over what h has unsynced.
func (c *files) clean(h *handle) {
	c.mu.Lock()
	h.dirty = false
	c.mu.Unlock()
}

// takeLostDirty reports and forgets lostDirty.
func (c *files) takeLostDirty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.lostDirty
	c.lostDirty = false
	return lost
}

func (c *files) setLostDirty() {
	c.mu.Lock()
	c.lostDirty = true
	c.mu.Unlock()
}

// shrink closes what was used longest ago while too much is open.
func (c *files) shrink() {
	for h := c.lru.prev; c.open > c.max && h != &c.lru; {
		older := h
		h = h.prev
		if older.refs == 0 {
			c.lostDirty = c.lostDirty || older.dirty
			c.close(older)
		}
	}
}

// close closes the file. What close may tell of a failed write-back, the sync that covers it tells too.
func (c *files) close(h *handle) {
	h.unlink()
	h.file.Close()
	h.file = nil
	c.open--
}

// closeAll closes everything that is not in use.
func (c *files) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = 0
	c.shrink()
}

func (h *handle) link(after *handle) {
	h.prev, h.next = after, after.next
	h.prev.next, h.next.prev = h, h
}

func (h *handle) unlink() {
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
}
