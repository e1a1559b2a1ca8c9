package controller

import (
	"lockstep/core"
	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Token is the caller's name for a request; the controller gives it back with the answer.
type Token uint64

// Answer is the answer to the request that came with Token.
type Answer struct {
	Token Token
	Msg   kmsg.Response
}

// Line is a line for the operator; the levels are those of log/slog.
type Line struct {
	Level int
	Msg   string
	Attrs []any
}

// Out collects what calls to a Controller want done. The caller empties it between calls.
type Out struct {
	// Records are to be appended to the metadata log as one batch, which is committed in whole or not at all.
	// The caller does so before the next call to the controller, and then calls Proposed, or Lost if it cannot.
	Records [][]byte
	Answers []Answer
	Log     []Line
}

// Settings are what a Controller is born with.
type Settings struct {
	NodeID    int32         // this broker
	Static    config.Values // its static configuration (server.properties)
	ClusterID string        // for a cluster that has none yet; empty: a random one
	Rand      core.Rand
}

// Controller decides for the whole cluster while this broker leads the metadata quorum.
type Controller struct {
	settings  Settings
	committed *Image
}

// New returns a controller that is not active. The image is the broker's own:
// the caller applies committed records to it before it calls Committed.
func New(s Settings, committed *Image) *Controller {
	return &Controller{settings: s, committed: committed}
}

// Lead makes the controller active. The caller leads the metadata quorum, an
// entry of its own term is committed, and everything up to there is applied.
func (c *Controller) Lead(now core.Time, out *Out) {}

// Lost makes it inactive: this broker no longer leads, or a proposal could not
// be appended. Everything unanswered gets NOT_CONTROLLER, and all that was not
// committed is forgotten (rule 12). It may be called at any time.
func (c *Controller) Lost(now core.Time, out *Out) {}

// Active reports whether the controller is between Lead and Lost.
func (c *Controller) Active() bool { return false }

// HearsMajority says until when no other controller can have been elected, as
// the quorum's leader knows from the answers of its majority; core.Never in a
// quorum of one. Beyond that instant no lease is granted and no request is
// refused with authority: the answer is NOT_CONTROLLER.
func (c *Controller) HearsMajority(until core.Time) {}

// Handles reports whether requests of this API key are for the controller.
func Handles(key int16) bool { return false }

// Handle takes a request. Its answer is in out at once or after a later call.
func (c *Controller) Handle(now core.Time, req kmsg.Request, token Token, out *Out) {}

// Proposed says that the records of the last call were appended and the last of them has this offset.
func (c *Controller) Proposed(last int64) {}

// Committed says that all records below next are committed and applied to the image.
func (c *Controller) Committed(now core.Time, next int64, out *Out) {}

// PeerClosed says that the connection to a broker broke. It may be called whether active or not.
func (c *Controller) PeerClosed(now core.Time, broker int32, out *Out) {}

// Tick lets time pass: sessions and leases end, leaders are rebalanced, requests time out.
func (c *Controller) Tick(now core.Time, out *Out) {}

// Deadline says when the controller next wants a Tick.
func (c *Controller) Deadline() core.Time { return core.Never }
