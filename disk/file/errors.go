package file

import (
	"errors"
	"fmt"

	"lockstep/disk"

	"golang.org/x/sys/unix"
)

// wrap gives an error of the system its name in package disk.
func wrap(call, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EROFS) { // whoever reads it must not look for a broken disk
		return fmt.Errorf("%s %s: %w: %w", call, name, disk.ErrIO, err)
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%s %s: %w", call, name, kind)
	}
	return fmt.Errorf("%s %s: %w", call, name, err)
}

func kindOf(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case unix.ENOENT:
		return disk.ErrNotExist
	case unix.EEXIST, unix.ENOTEMPTY:
		return disk.ErrExist
	case unix.ENOSPC, unix.EDQUOT:
		return disk.ErrNoSpace
	case unix.EIO, unix.EROFS: // ext4 goes read-only when it cannot write its journal
		return disk.ErrIO
	}
	return nil
}

// again calls f until no signal interrupts it.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
