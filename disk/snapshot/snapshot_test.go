package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"lockstep/disk"
	"lockstep/disk/file"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dir string) *Store {
	fs, err := file.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { fs.Close() })
	s, err := Open(fs)
	require.NoError(t, err)
	return s
}

func TestNewestIsTheLastSaved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, _, ok, err := s.Newest()
	require.NoError(t, err)
	require.False(t, ok)
	big := bytes.Repeat([]byte("state"), 100000)
	for _, c := range []struct {
		id      ID
		content []byte
	}{{ID{9, 1}, []byte("nine")}, {ID{100, 2}, nil}, {ID{1000, 2}, big}} {
		require.NoError(t, s.Save(c.id, c.content))
		for _, x := range []*Store{s, open(t, dir)} {
			id, content, ok, err := x.Newest()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, c.id, id)
			require.True(t, bytes.Equal(c.content, content))
		}
	}
	require.NoError(t, s.Drop(ID{1000, 2}))
	ids, err := s.list()
	require.NoError(t, err)
	require.Equal(t, []ID{{1000, 2}}, ids)
}

// TestDamageIsReported (rule 15): and never an older snapshot taken in place of the damaged one.
func TestDamageIsReported(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	require.NoError(t, s.Save(ID{1, 1}, []byte("old")))
	require.NoError(t, s.Save(ID{2, 1}, []byte("content")))
	name := filepath.Join(dir, ID{2, 1}.file())
	good, err := os.ReadFile(name)
	require.NoError(t, err)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		require.NoError(t, os.WriteFile(name, bad, 0o600))
		_, _, ok, err := s.Newest()
		require.ErrorIs(t, err, ErrCorrupt)
		require.False(t, ok)
		require.NoError(t, os.WriteFile(name, good[:i], 0o600))
		_, _, _, err = s.Newest()
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestUnfinishedSavesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	left := filepath.Join(dir, ID{5, 1}.file()+tmp)
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	s := open(t, dir)
	require.NoFileExists(t, left)
	_, _, ok, err := s.Newest()
	require.NoError(t, err)
	require.False(t, ok)
}

// failing is an FS whose syncs of directories fail.
type failing struct{ disk.FS }

func (failing) SyncDir(string) error { return disk.ErrIO }

// TestFailedSyncIsToldApart (rule 13).
func TestFailedSyncIsToldApart(t *testing.T) {
	s := open(t, t.TempDir())
	s.fs = failing{s.fs}
	var failed *SyncError
	require.ErrorAs(t, s.Save(ID{1, 1}, []byte("x")), &failed)
	require.ErrorIs(t, failed, disk.ErrIO)
}
