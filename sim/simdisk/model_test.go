package simdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"lockstep/disk"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// plainFile is what a file holds in the model, and what may be left of each of its sectors after a power loss.
type plainFile struct {
	data    []byte
	durable []byte
	sizes   []int64 // that it had since the last sync, the durable one first
}

func (f *plainFile) write(p []byte, off int) {
	if n := off + len(p); n > len(f.data) {
		f.data = append(f.data, make([]byte, n-len(f.data))...)
	}
	copy(f.data[off:], p)
	f.sizes = append(f.sizes, int64(len(f.data)))
}

func (f *plainFile) truncate(n int) {
	if n <= len(f.data) {
		f.data = f.data[:n:n]
	} else {
		f.data = append(f.data, make([]byte, n-len(f.data))...)
	}
	f.sizes = append(f.sizes, int64(n))
}

func (f *plainFile) sync() {
	f.durable = bytes.Clone(f.data)
	f.sizes = []int64{int64(len(f.data))}
}

// sector returns sector i of p, padded with zeros, up to a size.
func sector(p []byte, i int, size int64) []byte {
	out := make([]byte, sectorSize)
	for k := range out {
		if at := i*sectorSize + k; at < len(p) && int64(at) < size {
			out[k] = p[at]
		}
	}
	return out
}

// checkLoss says whether got is something that a power loss may leave of f.
func (f *plainFile) checkLoss(got []byte) error {
	lo, hi := slices.Min(f.sizes), slices.Max(f.sizes)
	size := int64(len(got))
	if size < lo || size > hi {
		return fmt.Errorf("size %d, had been between %d and %d", size, lo, hi)
	}
	for i := 0; i*sectorSize < len(got); i++ {
		g := sector(got, i, size)
		if !bytes.Equal(g, sector(f.durable, i, size)) && !bytes.Equal(g, sector(f.data, i, size)) {
			return fmt.Errorf("sector %d is neither what was synced nor what was written last", i)
		}
	}
	return nil
}

// TestAgainstPlainModel drives random calls against plain byte slices: processes see
// exactly what was written, also after kill -9, and a power loss leaves only what it may.
func TestAgainstPlainModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(rapid.Uint64().Draw(t, "seed"), Options{})
		model := map[string]*plainFile{}
		names := []string{"a", "b", "dir/c"}
		fs := d.Mount()
		require.NoError(t, fs.Mkdir("dir"))
		files := map[string]disk.File{}
		open := func() {
			for _, n := range names {
				f, err := fs.Open(n, disk.Create)
				require.NoError(t, err)
				files[n] = f
				if model[n] == nil {
					model[n] = &plainFile{sizes: []int64{0}}
				}
			}
			require.NoError(t, fs.SyncDir("."))
			require.NoError(t, fs.SyncDir("dir"))
		}
		open()
		pick := func() string { return rapid.SampledFrom(names).Draw(t, "name") }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				n := pick()
				p := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(1, 9000).Draw(t, "len"))
				off := rapid.IntRange(0, 12000).Draw(t, "off")
				k, err := files[n].WriteAt(p, int64(off))
				require.NoError(t, err)
				require.Equal(t, len(p), k)
				model[n].write(p, off)
			},
			"truncate": func(t *rapid.T) {
				n, size := pick(), rapid.IntRange(0, 15000).Draw(t, "size")
				require.NoError(t, files[n].Truncate(int64(size)))
				model[n].truncate(size)
			},
			"sync": func(t *rapid.T) {
				n := pick()
				require.NoError(t, files[n].Sync())
				model[n].sync()
			},
			"syncall": func(t *rapid.T) {
				require.NoError(t, fs.SyncAll())
				for _, n := range names {
					model[n].sync()
				}
			},
			"kill": func(t *rapid.T) {
				d.Kill()
				fs = d.Mount()
				open()
			},
			"power": func(t *rapid.T) {
				d.PowerLoss()
				fs = d.Mount()
				for _, n := range names {
					got := d.Content(n)
					require.NoError(t, model[n].checkLoss(got), n)
					model[n] = &plainFile{data: got}
					model[n].sync()
				}
				open()
			},
			"": func(t *rapid.T) {
				for _, n := range names {
					buf := make([]byte, len(model[n].data)+10)
					k, err := files[n].ReadAt(buf, 0)
					require.ErrorIs(t, err, io.EOF)
					require.True(t, bytes.Equal(model[n].data, buf[:k]), n)
				}
			},
		})
	})
}

// TestNamesAgainstModel does the same for names: what a power loss leaves is
// what some subset of the unsynced operations makes, prefix-closed per name.
func TestNamesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(rapid.Uint64().Draw(t, "seed"), Options{})
		fs := d.Mount()
		have := map[string]bool{}     // volatile
		durable := map[string]bool{}  // surely
		unsynced := map[string]bool{} // names with operations since the last sync
		names := []string{"x", "y", "z"}
		pick := func(t *rapid.T) string { return rapid.SampledFrom(names).Draw(t, "name") }
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				n := pick(t)
				_, err := fs.Open(n, disk.Create|disk.Exclusive)
				require.Equal(t, have[n], errors.Is(err, disk.ErrExist))
				have[n], unsynced[n] = true, true
			},
			"remove": func(t *rapid.T) {
				n := pick(t)
				require.Equal(t, have[n], fs.Remove(n) == nil)
				if have[n] {
					have[n], unsynced[n] = false, true
				}
			},
			"rename": func(t *rapid.T) {
				from, to := pick(t), pick(t)
				require.Equal(t, have[from], fs.Rename(from, to) == nil)
				if have[from] && from != to {
					have[from], have[to] = false, true
					unsynced[from], unsynced[to] = true, true
				}
			},
			"syncdir": func(t *rapid.T) {
				require.NoError(t, fs.SyncDir("."))
				for _, n := range names {
					durable[n], unsynced[n] = have[n], false
				}
			},
			"power": func(t *rapid.T) {
				d.PowerLoss()
				fs = d.Mount()
				for _, n := range names {
					_, err := fs.Stat(n)
					if !unsynced[n] {
						require.Equal(t, durable[n], err == nil, n)
					}
					have[n], durable[n], unsynced[n] = err == nil, err == nil, false
				}
			},
			"": func(t *rapid.T) {
				var want []string
				for _, n := range names {
					if have[n] {
						want = append(want, n)
					}
				}
				got, err := fs.List(".")
				require.NoError(t, err)
				require.ElementsMatch(t, want, got)
				require.True(t, slices.IsSorted(got))
			},
		})
	})
}
