package simdisk

import "math/bits"

const (
	pageSize   = 4096
	sectorSize = 512
	allSectors = 0xff
)

type block [pageSize]byte

// page is one page of a file in both images.
type page struct {
	data  *block // volatile content; nil is zeros
	old   *block // durable content, where mask or stale say that it differs; nil is zeros
	mask  uint8  // sectors written since the last sync
	stale bool   // a sync of this page failed: data is only in the cache, and not dirty
}

// inode is a file or a directory, apart from its name.
type inode struct {
	id  uint64
	dir bool

	entries, durable map[string]*inode // of a directory: both images
	ops              []*dirop          // of a directory: unsynced operations in it, in order

	pages      []page
	size       int64 // volatile
	durSize    int64
	minSize    int64   // smallest since the last sync
	dirtyPages []int32 // with mask != 0, in order of becoming so
	stalePages []int32
	listed     bool // in Disk.dirty
	allocEnd   int  // pages taken on the device

	named bool // has a name in the volatile image
	open  int  // handles
}

func (d *Disk) newInode(dir bool) *inode {
	d.nextID++
	ino := &inode{id: d.nextID, dir: dir}
	if dir {
		ino.entries, ino.durable = map[string]*inode{}, map[string]*inode{}
	}
	return ino
}

func (d *Disk) takeBlock() *block {
	if n := len(d.spare); n > 0 {
		b := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return b
	}
	return new(block)
}

func (d *Disk) freeBlock(b *block) {
	if b != nil {
		d.spare = append(d.spare, b)
	}
}

func pagesOf(bytes int64) int { return int((bytes + pageSize - 1) / pageSize) }

// reserve takes room on the device for the file's first n pages and returns for how many there was room.
func (d *Disk) reserve(ino *inode, n int) int {
	if n <= ino.allocEnd {
		return n
	}
	if d.capacity > 0 {
		n = min(n, ino.allocEnd+max(0, int(d.capacity/pageSize-d.used)))
	}
	d.used += int64(n - ino.allocEnd)
	ino.allocEnd = n
	return n
}

// list notes that a file has something unsynced.
func (d *Disk) list(ino *inode) {
	if !ino.listed {
		ino.listed = true
		d.dirty = append(d.dirty, ino)
	}
}

// soil makes page i dirty in the sectors of mask, remembering its durable content.
func (d *Disk) soil(ino *inode, i int, mask uint8) *page {
	pg := &ino.pages[i]
	if pg.mask == 0 {
		if pg.stale { // all of the page is written back, as it was never done before
			pg.stale = false
			mask = allSectors
		} else if pg.data != nil {
			pg.old = d.takeBlock()
			*pg.old = *pg.data
		}
		ino.dirtyPages = append(ino.dirtyPages, int32(i))
		d.list(ino)
	}
	pg.mask |= mask
	return pg
}

// sectors returns the mask of the sectors that bytes [from, to) of a page touch.
func sectors(from, to int) uint8 {
	return uint8(0xff<<(from/sectorSize)) & uint8(0xff>>(7-(to-1)/sectorSize))
}

// write changes the volatile image; there is room for it.
func (d *Disk) write(ino *inode, p []byte, off int64) {
	end := off + int64(len(p))
	for n := pagesOf(end); len(ino.pages) < n; {
		ino.pages = append(ino.pages, page{})
	}
	for len(p) > 0 {
		i, from := int(off/pageSize), int(off%pageSize)
		n := min(len(p), pageSize-from)
		pg := d.soil(ino, i, sectors(from, from+n))
		if pg.data == nil {
			pg.data = d.takeBlock()
			*pg.data = block{}
		}
		copy(pg.data[from:], p[:n])
		p, off = p[n:], off+int64(n)
	}
	if end > ino.size {
		d.resize(ino, end)
	}
}

// resize sets the size alone; bytes beyond it are zeros already.
func (d *Disk) resize(ino *inode, size int64) {
	ino.size = size
	ino.minSize = min(ino.minSize, size)
	d.list(ino)
}

// truncate changes the volatile image.
func (d *Disk) truncate(ino *inode, size int64) {
	if size < ino.size {
		if from := int(size % pageSize); from != 0 {
			if i := int(size / pageSize); i < len(ino.pages) && ino.pages[i].data != nil {
				clear(d.soil(ino, i, sectors(from, pageSize)).data[from:])
			}
		}
		for i := pagesOf(size); i < len(ino.pages); i++ {
			if pg := &ino.pages[i]; pg.data != nil {
				pg = d.soil(ino, i, allSectors)
				d.freeBlock(pg.data)
				pg.data = nil
			}
		}
		if n := pagesOf(size); n < ino.allocEnd {
			d.used -= int64(ino.allocEnd - n)
			ino.allocEnd = n
		}
	}
	if size != ino.size {
		d.resize(ino, size)
	}
}

// read copies from the volatile image; p lies within the size.
func (ino *inode) read(p []byte, off int64) {
	for len(p) > 0 {
		i, from := int(off/pageSize), int(off%pageSize)
		n := min(len(p), pageSize-from)
		if i < len(ino.pages) && ino.pages[i].data != nil {
			copy(p[:n], ino.pages[i].data[from:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// sync makes the file's data and size durable.
func (d *Disk) sync(ino *inode) {
	for _, i := range ino.dirtyPages {
		pg := &ino.pages[i]
		d.freeBlock(pg.old)
		pg.mask, pg.old = 0, nil
	}
	ino.dirtyPages = ino.dirtyPages[:0]
	ino.durSize, ino.minSize = ino.size, ino.size
	d.trim(ino)
}

// trim forgets pages beyond the size, once nothing durable is there either.
func (d *Disk) trim(ino *inode) {
	if n := pagesOf(ino.size); n < len(ino.pages) && len(ino.stalePages) == 0 {
		for i := n; i < len(ino.pages); i++ {
			d.freeBlock(ino.pages[i].data)
		}
		clear(ino.pages[n:])
		ino.pages = ino.pages[:n]
	}
}

func (ino *inode) dirtySectors() (n int) {
	for _, i := range ino.dirtyPages {
		n += bits.OnesCount8(ino.pages[i].mask)
	}
	return n
}

// drop frees a file that has no name, in either image, and no handle.
func (d *Disk) drop(ino *inode) {
	for i := range ino.pages {
		d.freeBlock(ino.pages[i].data)
		d.freeBlock(ino.pages[i].old)
	}
	ino.pages, ino.dirtyPages, ino.stalePages = nil, nil, nil
	if ino.listed {
		for i, x := range d.dirty {
			if x == ino {
				d.dirty = append(d.dirty[:i], d.dirty[i+1:]...)
				break
			}
		}
		ino.listed = false
	}
}

// unused gives back the room of a file that lost its last name or handle.
func (d *Disk) unused(ino *inode) {
	if !ino.named && ino.open == 0 {
		d.used -= int64(ino.allocEnd)
		ino.allocEnd = 0
	}
}
