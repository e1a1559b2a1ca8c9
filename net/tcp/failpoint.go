package tcp

import (
	"errors"
	"os"

	"github.com/pingcap/failpoint"
)

// failing says whether anybody can have enabled a failpoint in this process.
var failing = os.Getenv("GO_FAILPOINTS") != "" || os.Getenv("GO_FAILPOINTS_HTTP") != ""

var errInjected = errors.New("injected failure")

// fail evaluates a failpoint: sleep(ms) makes it slow, return("reset") breaks the
// connection there. They are:
//
//	lockstep/net/tcp/accept   a connection was accepted
//	lockstep/net/tcp/frame    the head of a frame has arrived
//	lockstep/net/tcp/write    before bytes of answers are sent
func fail(point string) error {
	if !failing {
		return nil
	}
	if value, err := failpoint.Eval("lockstep/net/tcp/" + point); err == nil && value == "reset" {
		return errInjected
	}
	return nil
}
