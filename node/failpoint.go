package node

import (
	"os"

	"github.com/pingcap/failpoint"
)

// failing says whether anybody can have enabled a failpoint in this process.
var failing = os.Getenv("GO_FAILPOINTS") != "" || os.Getenv("GO_FAILPOINTS_HTTP") != ""

// mark is a place where a test of the real binary may wait (sleep(ms)) or die
// (panic). They are:
//
//	lockstep/node/step       before a batch of inputs is stepped
//	lockstep/node/appended   an append is written and the core does not know yet
//	lockstep/node/synced     a round of syncs is done and the core does not know yet
//	lockstep/node/answered   an answer is made and not sent yet
//	lockstep/node/compact    a run of compaction is about to begin
func mark(point string) {
	if failing {
		_, _ = failpoint.Eval("lockstep/node/" + point)
	}
}
