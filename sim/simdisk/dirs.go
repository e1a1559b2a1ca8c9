package simdisk

import (
	"fmt"
	"path"
	"strings"

	"lockstep/disk"
)

// dirop is one change of directory entries that is not durable yet. A create
// has only to, a remove only from, a rename both.
type dirop struct {
	seq        uint64
	ino        *inode
	fromDir    *inode
	from       string
	toDir      *inode
	to         string
	fromSynced bool
	toSynced   bool
	done       bool
}

// note records a change that was made to the volatile image.
func (d *Disk) note(op *dirop) {
	d.nextSeq++
	op.seq = d.nextSeq
	d.pending = append(d.pending, op)
	if op.fromDir != nil {
		op.fromDir.ops = append(op.fromDir.ops, op)
	}
	if op.toDir != nil && op.toDir != op.fromDir {
		op.toDir.ops = append(op.toDir.ops, op)
	}
}

// apply makes one change durable.
func (d *Disk) apply(op *dirop) {
	op.done = true
	if op.fromDir != nil {
		delete(op.fromDir.durable, op.from)
		if op.toDir == nil {
			d.forget(op.ino)
		}
	}
	if op.toDir != nil {
		if was := op.toDir.durable[op.to]; was != nil && was != op.ino {
			d.forget(was)
		}
		op.toDir.durable[op.to] = op.ino
	}
}

// forget frees a file that just lost its durable name, if that was the last thing that held it.
func (d *Disk) forget(ino *inode) {
	if !ino.named && ino.open == 0 {
		d.drop(ino)
	}
}

type entry struct {
	dir  *inode
	name string
}

// blocked is a set of entries whose earlier changes are not durable, so that later ones cannot be either.
type blocked map[entry]bool

func (b blocked) stops(op *dirop) bool {
	return op.fromDir != nil && b[entry{op.fromDir, op.from}] || op.toDir != nil && b[entry{op.toDir, op.to}]
}

func (b blocked) add(op *dirop) {
	if op.fromDir != nil {
		b[entry{op.fromDir, op.from}] = true
	}
	if op.toDir != nil {
		b[entry{op.toDir, op.to}] = true
	}
}

// syncDir makes the changes in one directory durable. A rename between two directories
// waits for the sync of both, and what came after it on the same names waits with it.
func (d *Disk) syncDir(dir *inode) {
	if len(dir.ops) == 0 {
		return
	}
	var wait blocked
	kept := dir.ops[:0]
	for _, op := range dir.ops {
		if op.done {
			continue
		}
		op.fromSynced = op.fromSynced || op.fromDir == dir
		op.toSynced = op.toSynced || op.toDir == dir
		whole := (op.fromDir == nil || op.fromSynced) && (op.toDir == nil || op.toSynced)
		if !whole || wait.stops(op) {
			if wait == nil {
				wait = blocked{}
			}
			wait.add(op)
			kept = append(kept, op)
			continue
		}
		d.apply(op)
	}
	clear(dir.ops[len(kept):])
	dir.ops = kept
	d.tidy()
}

// tidy drops finished operations from the list of all.
func (d *Disk) tidy() {
	kept := d.pending[:0]
	for _, op := range d.pending {
		if !op.done {
			kept = append(kept, op)
		}
	}
	clear(d.pending[len(kept):])
	d.pending = kept
}

func (d *Disk) syncAllDirs() {
	for _, op := range d.pending {
		d.apply(op)
		if op.fromDir != nil {
			op.fromDir.ops = nil
		}
		if op.toDir != nil {
			op.toDir.ops = nil
		}
	}
	clear(d.pending)
	d.pending = d.pending[:0]
}

// find walks to a name.
func (d *Disk) find(name string) *inode {
	ino := d.root
	for name != "." && name != "" {
		part, rest, _ := strings.Cut(name, "/")
		if !ino.dir {
			return nil
		}
		if ino = ino.entries[part]; ino == nil {
			return nil
		}
		name = rest
	}
	return ino
}

// parent walks to the directory of a name and returns it with the last part.
func (d *Disk) parent(name string) (*inode, string, error) {
	dir := d.find(path.Dir(name))
	base := path.Base(name)
	if dir == nil || !dir.dir || base == "." || base == "/" || base == ".." {
		return nil, "", disk.ErrNotExist
	}
	return dir, base, nil
}

func (d *Disk) enter(dir *inode, name string, ino *inode) {
	ino.named = true
	dir.entries[name] = ino
	d.note(&dirop{ino: ino, toDir: dir, to: name})
}

func (d *Disk) remove(dir *inode, name string, ino *inode) {
	delete(dir.entries, name)
	ino.named = false
	d.note(&dirop{ino: ino, fromDir: dir, from: name})
	d.unused(ino)
}

func (d *Disk) rename(fromDir *inode, from string, toDir *inode, to string) error {
	ino := fromDir.entries[from]
	was := toDir.entries[to]
	if was == ino {
		return nil
	}
	if was != nil {
		if was.dir != ino.dir || len(was.entries) > 0 {
			return disk.ErrExist
		}
		was.named = false
		d.unused(was)
	}
	delete(fromDir.entries, from)
	toDir.entries[to] = ino
	d.note(&dirop{ino: ino, fromDir: fromDir, from: from, toDir: toDir, to: to})
	return nil
}

func wrap(call, name string, err error) error { return fmt.Errorf("%s %s: %w", call, name, err) }
