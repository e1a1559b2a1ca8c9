package file

import (
	"os"

	"lockstep/disk"

	"github.com/pingcap/failpoint"
)

// failing says whether anybody can have enabled a failpoint in this process.
var failing = os.Getenv("GO_FAILPOINTS") != "" || os.Getenv("GO_FAILPOINTS_HTTP") != ""

// fail evaluates a failpoint: short is set, or the error is that of the call.
func fail(point string) (short bool, err error) {
	if !failing {
		return false, nil
	}
	value, err := failpoint.Eval("lockstep/disk/file/" + point)
	if err != nil {
		return false, nil // not enabled
	}
	switch value {
	case "EIO":
		return false, disk.ErrIO
	case "ENOSPC":
		return false, disk.ErrNoSpace
	}
	return value == "short", nil
}
