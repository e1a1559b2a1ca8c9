package controller

import (
	"fmt"
	"time"

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

// Levels of a Line.
const (
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

// Out collects what calls to a Controller want done. The caller empties it between calls.
type Out struct {
	// Records are to be appended to the metadata log as one batch, which is committed in whole or not at all.
	// The caller does so before the next call to the controller, which is Proposed, or Refused if it cannot.
	Records [][]byte
	Answers []Answer
	Log     []Line
}

// Settings are what a Controller is born with.
type Settings struct {
	NodeID      int32         // this broker
	Incarnation [16]byte      // of this process
	Static      config.Values // its static configuration (server.properties)
	ClusterID   string        // for a cluster that has none yet; empty: a random one
	Rand        core.Rand
}

// Controller decides for the whole cluster while this broker leads the metadata quorum.
type Controller struct {
	settings  Settings
	committed *Image

	active    bool
	spec      *Image          // committed, and all that was proposed since: what decisions are made on
	diverged  bool            // spec has been changed since it was cloned
	batches   []batch         // proposed and not committed yet, in order
	call      call            // the call that is under way
	proposing *batch          // the batch that the caller is appending
	heard     core.Time       // when its majority last followed it, at the least
	lives     []life          // what is known of each registered broker's health, by id
	closed    []closure       // connections that closed lately
	refusals  map[int32]int16 // why a broker was not registered, as was logged
	grace     core.Time       // nobody is fenced before
	due       core.Time       // what Deadline says, if dueKnown
	dueKnown  bool
	rebalance core.Time // when leaders are rebalanced next

	layers   config.Layers // of this broker, as of spec
	broker   config.BrokerConfig
	defaults config.TopicConfig
}

// batch is one proposal, and who waits for it.
type batch struct {
	last    int64 // offset of its last record
	records []Record
	waiting []waiting
}

// waiting is an answer that is ready, and waits for a batch to be committed.
type waiting struct {
	token    Token
	req      kmsg.Request
	resp     kmsg.Response
	decided  bool // records were proposed for it, so their commit proves its authority
	deadline core.Time
}

// call is what one call has done so far.
type call struct {
	now     core.Time
	out     *Out
	records []Record
	err     error // a record did not fit: a bug, met by refusing the request
}

// New returns a controller that is not active. The image is the broker's own:
// the caller applies committed records to it before it calls Committed.
func New(s Settings, committed *Image) *Controller {
	return &Controller{settings: s, committed: committed, refusals: map[int32]int16{}}
}

// Active reports whether the controller is between Lead and Lost.
func (c *Controller) Active() bool { return c.active }

// HearsMajority says when, at the latest, no other controller had been elected, as the quorum's leader knows from the answers of
// its majority; core.Never in a quorum of one. Leases are counted from that instant. AuthoritySlack beyond it none is granted,
// nobody is fenced, and no request is refused with authority: the answer is NOT_CONTROLLER.
func (c *Controller) HearsMajority(heard core.Time) { c.heard = heard }

// authority is until when it speaks as the controller.
func (c *Controller) authority() core.Time { return c.heard.Add(AuthoritySlack) }

// Lead makes the controller active. The caller leads the metadata quorum, an
// entry of its own term is committed, and everything up to there is applied:
// whatever this broker proposed earlier is either applied or will never be.
func (c *Controller) Lead(now core.Time, out *Out) {
	c.begin(now, out)
	c.active, c.batches, c.grace = true, nil, 0
	c.reset()
	c.beginLives(now)
	c.rebalance = now.Add(c.broker.LeaderRebalanceCheck)
	if c.spec.clusterID == "" {
		c.formCluster()
	}
	c.electLeaderless(func(*Partition) bool { return true })
	c.log(levelInfo, "this broker is the active controller", "cluster", c.spec.clusterID, "next offset", c.committed.next)
	c.propose(nil)
}

// formCluster writes the first records of a new cluster.
func (c *Controller) formCluster() {
	id := c.settings.ClusterID
	if id == "" {
		id = randomClusterID(c.settings.Rand)
	}
	c.emit(&ClusterRecord{id})
	c.emit(&FeatureRecord{MetadataFeature, MetadataLevel})
	for _, e := range config.Seeds(c.settings.Static) {
		c.emit(&ConfigRecord{allBrokers, config.Change{Name: e.Name, Value: &e.Value}})
	}
}

// Lost makes it inactive: this broker no longer leads. Everything unanswered
// gets NOT_CONTROLLER, and all that was not committed is forgotten (rule 12,
// museum B30). It may be called at any time.
func (c *Controller) Lost(now core.Time, out *Out) {
	c.start(now, out)
	if c.proposing != nil {
		c.batches = append(c.batches, *c.proposing)
	}
	for _, b := range c.batches {
		c.refuse(b.waiting)
	}
	c.active, c.spec, c.batches, c.proposing, c.lives = false, nil, nil, nil, nil
	clear(c.refusals)
}

// Proposed says that the records of the last call were appended and the last of them has this offset.
func (c *Controller) Proposed(last int64) {
	if c.proposing == nil {
		panic("controller: Proposed without records")
	}
	c.proposing.last = last
	c.batches = append(c.batches, *c.proposing)
	c.proposing = nil
}

// Refused says that the records of the last call could not be appended. It is as if the call had not been made, but for
// its request, which gets NOT_CONTROLLER.
func (c *Controller) Refused(now core.Time, out *Out) {
	c.start(now, out)
	if b := c.proposing; b != nil {
		c.proposing = nil
		c.refuse(b.waiting)
		c.reset()
	}
	// What it does by itself, it would try again at once, and be refused at once, as long as the disk is full.
	c.grace, c.rebalance = max(c.grace, now.Add(refusedPause)), max(c.rebalance, now.Add(refusedPause))
}

// refusedPause is how long a controller whose records could not be appended waits before it fences or rebalances anew.
const refusedPause = 100 * time.Millisecond

// Dropped says that the records at and above from, though proposed, will never be committed, while this broker still leads.
func (c *Controller) Dropped(now core.Time, from int64, out *Out) {
	c.begin(now, out)
	keep := len(c.batches)
	for keep > 0 && c.batches[keep-1].last >= from {
		keep--
		c.refuse(c.batches[keep].waiting)
	}
	c.batches = c.batches[:keep]
	if c.active {
		c.reset()
	}
}

// Committed says that all records below next are committed and applied to the image.
func (c *Controller) Committed(now core.Time, next int64, out *Out) {
	c.begin(now, out)
	done := 0
	for done < len(c.batches) && c.batches[done].last < next {
		for _, w := range c.batches[done].waiting {
			c.answer(w)
		}
		done++
	}
	c.batches = c.batches[done:]
	if c.active && len(c.batches) == 0 && c.proposing == nil && c.diverged {
		c.reset() // the two are equal now; sharing again what both hold
	}
}

// begin starts a call.
func (c *Controller) begin(now core.Time, out *Out) {
	if c.proposing != nil {
		panic("controller: called before the records of the last call were proposed or refused")
	}
	c.start(now, out)
}

func (c *Controller) start(now core.Time, out *Out) {
	c.call, c.dueKnown = call{now: now, out: out}, false
	if c.active {
		c.noticePause(now)
	}
}

// reset makes the speculative image anew: what is committed, and what is proposed.
func (c *Controller) reset() {
	c.spec, c.diverged = c.committed.Clone(), false
	for _, b := range c.batches {
		if b.last < c.committed.next {
			continue
		}
		for _, r := range b.records {
			c.diverged = true
			if _, err := c.spec.apply(-1, r); err != nil {
				panic(fmt.Sprintf("controller: a proposed record does not fit: %v", err))
			}
		}
	}
	c.refreshConfig()
}

// refreshConfig resolves this broker's settings anew.
func (c *Controller) refreshConfig() {
	c.layers = c.spec.Layers(c.settings.NodeID, c.settings.Static)
	c.broker, c.defaults = c.layers.Broker(), c.layers.TopicDefaults()
}

// emit adds a record to the call's, and to the speculative image.
func (c *Controller) emit(r Record) {
	if c.call.err != nil {
		return
	}
	c.diverged = true
	if _, err := c.spec.apply(-1, r); err != nil {
		c.call.err = err
		return
	}
	c.call.records = append(c.call.records, r)
	if cr, ok := r.(*ConfigRecord); ok && cr.Resource.Type == kmsg.ConfigResourceTypeBroker {
		c.refreshConfig()
	}
}

// propose ends a call: its records are to be appended, and w, if not nil, is answered when they are committed. An answer
// without records waits for what it may have seen: everything proposed so far.
func (c *Controller) propose(w *waiting) {
	call := &c.call
	if call.err != nil {
		c.log(levelError, "a request led to records that contradict each other; this is a bug", "error", call.err)
		call.records = nil
		c.reset()
		if w != nil {
			w.resp = ErrorResponse(w.req, codeUnknownServerError)
		}
	}
	if len(call.records) == 0 {
		switch {
		case w == nil:
		case len(c.batches) > 0:
			last := &c.batches[len(c.batches)-1]
			last.waiting = append(last.waiting, *w)
		default:
			c.answer(*w)
		}
		return
	}
	c.proposing = &batch{records: call.records}
	if w != nil {
		w.decided = true
		c.proposing.waiting = []waiting{*w}
	}
	for _, r := range call.records {
		call.out.Records = append(call.out.Records, Encode(r))
	}
}

// answer sends a finished answer. One that rests on no record of its own is
// given only while no other controller can exist: a deposed one must not
// refuse with authority (museum A31).
func (c *Controller) answer(w waiting) {
	if !w.decided && c.call.now > c.authority() {
		w.resp = ErrorResponse(w.req, codeNotController)
	}
	c.call.out.Answers = append(c.call.out.Answers, Answer{w.token, w.resp})
}

func (c *Controller) refuse(all []waiting) {
	for _, w := range all {
		c.call.out.Answers = append(c.call.out.Answers, Answer{w.token, ErrorResponse(w.req, codeNotController)})
	}
}

func (c *Controller) log(level int, msg string, attrs ...any) {
	c.call.out.Log = append(c.call.out.Log, Line{level, msg, attrs})
}

// Tick lets time pass: sessions and leases end, leaders are rebalanced, requests time out.
func (c *Controller) Tick(now core.Time, out *Out) {
	c.begin(now, out)
	if !c.active {
		return
	}
	c.timeOut()
	c.fenceSilent()
	c.rebalanceLeaders()
	c.propose(nil)
}

// Deadline says when the controller next wants a Tick.
func (c *Controller) Deadline() core.Time {
	if !c.active {
		return core.Never
	}
	if !c.dueKnown { // asked after every step of the broker, it changes only with a call
		c.due, c.dueKnown = c.nextDeadline(), true
	}
	return c.due
}

func (c *Controller) nextDeadline() core.Time {
	d := c.nextFencing()
	if c.broker.AutoLeaderRebalance {
		d = core.Earlier(d, c.rebalance)
	}
	for _, b := range c.batches {
		for _, w := range b.waiting {
			d = core.Earlier(d, w.deadline)
		}
	}
	return d
}

// timeOut answers requests whose time is up. What they asked for may still come to pass, as with any timeout.
func (c *Controller) timeOut() {
	for i := range c.batches {
		b := &c.batches[i]
		keep := b.waiting[:0]
		for _, w := range b.waiting {
			if w.deadline > c.call.now {
				keep = append(keep, w)
				continue
			}
			c.call.out.Answers = append(c.call.out.Answers, Answer{w.token, ErrorResponse(w.req, codeRequestTimedOut)})
		}
		b.waiting = keep
	}
}
