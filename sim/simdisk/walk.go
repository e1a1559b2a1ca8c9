package simdisk

import (
	"maps"
	"slices"
)

// each visits every file in ascending order of names until visit returns false.
func (d *Disk) each(dir *inode, prefix string, visit func(name string, ino *inode) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
		ino := dir.entries[name]
		if ino.dir {
			if !d.each(ino, prefix+name+"/", visit) {
				return false
			}
		} else if !visit(prefix+name, ino) {
			return false
		}
	}
	return true
}

// Files returns the names of all files as the process sees them, in ascending order.
func (d *Disk) Files() []string {
	var names []string
	d.each(d.root, "", func(name string, _ *inode) bool {
		names = append(names, name)
		return true
	})
	return names
}

// Content returns a file's content as the process sees it, without counting as a call; nil if there is no such file.
func (d *Disk) Content(name string) []byte {
	ino := d.find(name)
	if ino == nil || ino.dir {
		return nil
	}
	p := make([]byte, ino.size)
	ino.read(p, 0)
	return p
}

// Written is Content without the zeros behind the last page that was ever written: what a
// preallocated file really holds.
func (d *Disk) Written(name string) []byte {
	ino := d.find(name)
	if ino == nil || ino.dir {
		return nil
	}
	n := len(ino.pages)
	for n > 0 && ino.pages[n-1].data == nil {
		n--
	}
	p := make([]byte, min(ino.size, int64(n)*pageSize))
	ino.read(p, 0)
	return p
}
