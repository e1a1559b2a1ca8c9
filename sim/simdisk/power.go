package simdisk

import (
	"maps"

	"lockstep/sim/seed"
)

// fortune is how kind one power loss is: which chance anything unsynced has, and in which grain.
type fortune struct {
	chance  seed.Stream
	data    int  // chance in a thousand that a sector survives
	names   int  // that a directory operation does
	pages   bool // whole pages survive, or sectors do
	ordered bool // what was dirtied first survives, up to some point; else each has its own luck
}

// extremes are as likely as what lies between: whole loss and no loss find bugs that a coin does not.
var chances = [...]int{0, 0, 100, 500, 900, 1000, 1000}

func drawFortune(s seed.Stream) fortune {
	f := fortune{chance: s}
	f.data = chances[f.chance.Intn(len(chances))]
	f.names = chances[f.chance.Intn(len(chances))]
	f.pages = f.chance.Chance(400)
	f.ordered = f.chance.Chance(300)
	return f
}

// losePower makes the durable image, with a subset of what was unsynced, the only one.
func (d *Disk) losePower(s seed.Stream) {
	f := drawFortune(s)
	for _, ino := range d.dirty {
		ino.listed = false
		d.loseData(ino, &f)
	}
	d.dirty = d.dirty[:0]
	d.loseNames(&f)
	d.used = 0
	d.rebuild(d.root)
	d.mix(f.chance.Uint64())
}

// loseData decides for each unsynced sector of a file, and for its size.
func (d *Disk) loseData(ino *inode, f *fortune) {
	left := -1
	if f.ordered {
		left = f.chance.Intn(len(ino.dirtyPages) + 1)
	}
	for at, i := range ino.dirtyPages {
		pg := &ino.pages[i]
		keep := d.keepSectors(pg.mask, f)
		if left >= 0 && at < left {
			keep = pg.mask
		} else if left >= 0 && at > left {
			keep = 0
		}
		d.settle(pg, keep)
	}
	for _, i := range ino.stalePages {
		if pg := &ino.pages[i]; pg.stale {
			pg.stale = false
			d.settle(pg, 0)
		}
	}
	ino.dirtyPages, ino.stalePages = ino.dirtyPages[:0], nil
	d.loseSize(ino, f)
}

func (d *Disk) keepSectors(mask uint8, f *fortune) uint8 {
	if f.pages {
		if f.chance.Chance(f.data) {
			return mask
		}
		return 0
	}
	var keep uint8
	for bit := uint8(1); bit != 0; bit <<= 1 {
		if mask&bit != 0 && f.chance.Chance(f.data) {
			keep |= bit
		}
	}
	return keep
}

// settle makes one page the same in both images: new in the sectors of keep, old elsewhere.
func (d *Disk) settle(pg *page, keep uint8) {
	var zeros block
	for i := 0; i < 8; i++ {
		bit := uint8(1) << i
		from := i * sectorSize
		switch {
		case pg.mask&bit == 0 && pg.mask != 0: // clean
		case keep&bit != 0:
			d.stats.KeptSectors++
		default:
			if pg.mask != 0 {
				d.stats.LostSectors++
			}
			old := &zeros
			if pg.old != nil {
				old = pg.old
			}
			if pg.data == nil {
				if pg.old == nil {
					continue
				}
				pg.data = d.takeBlock()
				*pg.data = block{}
			}
			copy(pg.data[from:from+sectorSize], old[from:])
		}
	}
	d.freeBlock(pg.old)
	pg.old, pg.mask = nil, 0
}

// loseSize draws the size: the durable one, the last one, or one on the way.
func (d *Disk) loseSize(ino *inode, f *fortune) {
	size := ino.size
	if size != ino.durSize || ino.minSize < size {
		lo, hi := min(ino.minSize, ino.durSize), max(size, ino.durSize)
		switch {
		case f.chance.Chance(f.data):
		case f.chance.Chance(500):
			size = ino.durSize
		default:
			size = f.chance.Between(lo, hi)
		}
		if size != ino.size {
			d.stats.LostSizes++
		}
	}
	ino.setSize(size)
	ino.durSize, ino.minSize = size, size
	d.trim(ino)
}

// setSize sets the size in both images and clears what lies beyond it.
func (ino *inode) setSize(size int64) {
	ino.size = size
	if i := int(size / pageSize); i < len(ino.pages) && ino.pages[i].data != nil {
		clear(ino.pages[i].data[size%pageSize:])
	}
}

// loseNames decides for each unsynced directory operation, in their order: without an earlier one on the same name there is no later one.
func (d *Disk) loseNames(f *fortune) {
	lost := blocked{}
	for _, op := range d.pending {
		if op.fromDir != nil {
			op.fromDir.ops = nil
		}
		if op.toDir != nil {
			op.toDir.ops = nil
		}
		if lost.stops(op) || !f.chance.Chance(f.names) {
			lost.add(op)
			d.stats.LostNames++
			continue
		}
		d.apply(op)
	}
	clear(d.pending)
	d.pending = d.pending[:0]
}

// rebuild makes the volatile tree equal to the durable one.
func (d *Disk) rebuild(dir *inode) {
	dir.entries = maps.Clone(dir.durable)
	for _, ino := range dir.entries { // the order does not matter: each is treated alone
		ino.named = true
		if ino.dir {
			d.rebuild(ino)
			continue
		}
		ino.allocEnd = pagesOf(ino.size)
		d.used += int64(ino.allocEnd)
	}
}

// failSync is a sync that failed: a subset of what it covered is durable, and the rest is gone, or is only in the cache.
func (d *Disk) failSync(ino *inode, s strike) {
	f := drawFortune(*s.chance)
	for _, i := range ino.dirtyPages {
		pg := &ino.pages[i]
		keep := d.keepSectors(pg.mask, &f)
		if s.effect == IOErrorStale && keep != pg.mask {
			pg.mask, pg.stale = 0, true // the durable content stays in old, whole
			ino.stalePages = append(ino.stalePages, i)
			continue
		}
		d.settle(pg, keep)
	}
	ino.dirtyPages = ino.dirtyPages[:0]
	if f.chance.Chance(500) {
		ino.durSize, ino.minSize = ino.size, ino.size
	}
	d.clearBeyond(ino)
	*s.chance = f.chance
}

// clearBeyond clears what came back beyond the size: a file that grows again reads as zeros there, whatever became of its pages.
func (d *Disk) clearBeyond(ino *inode) {
	for i := int(ino.size / pageSize); i < len(ino.pages); i++ {
		from := int(max(0, ino.size-int64(i)*pageSize))
		if data := ino.pages[i].data; data != nil && !allZero(data[from:]) {
			clear(d.soil(ino, i, sectors(from, pageSize)).data[from:])
		}
	}
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// failDirs is a directory sync that failed (of all directories if dir is nil):
// some operations are durable, the others wait for a later sync.
func (d *Disk) failDirs(dir *inode, chance *seed.Stream) {
	keep := chances[chance.Intn(len(chances))]
	lost := blocked{}
	for _, op := range d.pending {
		if dir != nil && op.fromDir != dir && op.toDir != dir {
			continue
		}
		if lost.stops(op) || !chance.Chance(keep) {
			lost.add(op)
			continue
		}
		d.apply(op)
	}
	d.tidy()
}

// misdirect puts a write where it does not belong, in both images.
func (d *Disk) misdirect(f *File, p []byte, off int64, chance *seed.Stream) {
	victim := f.ino
	if len(f.m.handles) > 0 && chance.Chance(500) {
		victim = f.m.handles[chance.Intn(len(f.m.handles))].ino
	}
	name := f.name
	for _, h := range f.m.handles {
		if h.ino == victim {
			name = h.name
			break
		}
	}
	at := int64(0)
	if n := victim.size / sectorSize; n > 0 {
		at = int64(chance.Below(uint64(n))) * sectorSize
	}
	n := int(max(0, min(int64(len(p)), victim.size-at)))
	victim.poke(p[:n], at)
	// where it belongs, the file grows and holds what it held
	if end := off + int64(len(p)); end > f.ino.size && d.reserve(f.ino, pagesOf(end)) >= pagesOf(end) {
		d.resize(f.ino, end)
	}
	d.damages = append(d.damages,
		Damage{Name: name, Off: at, N: int64(n), Effect: Misdirect},
		Damage{Name: f.name, Off: off, N: int64(len(p)), Effect: Misdirect})
}

// poke changes bytes within the size in both images.
func (ino *inode) poke(p []byte, off int64) {
	for len(p) > 0 {
		i, from := int(off/pageSize), int(off%pageSize)
		n := min(len(p), pageSize-from)
		if i < len(ino.pages) {
			pg := &ino.pages[i]
			if pg.data == nil {
				pg.data = new(block)
			}
			copy(pg.data[from:], p[:n])
			if pg.old != nil {
				copy(pg.old[from:], p[:n])
			}
		}
		p, off = p[n:], off+int64(n)
	}
}

// rot flips one bit of a file at rest.
func (d *Disk) rot(ino *inode, name string, chance *seed.Stream) bool {
	if ino == nil || ino.size == 0 {
		return false
	}
	off := chance.Below(uint64(ino.size))
	i := int(off / pageSize)
	for i >= len(ino.pages) {
		ino.pages = append(ino.pages, page{})
	}
	var b [1]byte
	ino.read(b[:], int64(off))
	b[0] ^= 1 << chance.Intn(8)
	ino.poke(b[:], int64(off))
	d.damages = append(d.damages, Damage{Name: name, Off: int64(off), N: 1, Effect: Rot})
	d.mix(off)
	return true
}

// rotAny flips one bit in one of the files that match, the larger the likelier.
func (d *Disk) rotAny(pattern string, chance *seed.Stream) bool {
	var sum int64
	d.each(d.root, "", func(name string, ino *inode) bool {
		if matches(pattern, name) {
			sum += ino.size
		}
		return true
	})
	if sum == 0 {
		return false
	}
	at := int64(chance.Below(uint64(sum)))
	d.each(d.root, "", func(name string, ino *inode) bool {
		if matches(pattern, name) {
			if at < ino.size {
				d.rot(ino, name, chance)
				d.stats.Fired[Rot]++
				return false
			}
			at -= ino.size
		}
		return true
	})
	return true
}
