package broker

import (
	"fmt"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/quorum"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership is this broker's standing in the cluster.
type membership struct {
	epoch    int64  // broker epoch of this life, -1 until registered (rule 9)
	last     int64  // the last such epoch, 0 if there was none yet
	roles    bool   // replicas have been told their roles under it
	joining  bool   // a registration is under way
	refused  int16  // why the last one was, as was logged
	retry    *timer // of a registration that failed
	opening  int    // logs that are being opened
	ready    bool   // Ready was emitted
	current  bool   // see knowsCluster
	beating  bool   // a heartbeat is under way
	beat     *timer
	boss     int32 // the controller as last known, -1 if none is: whom heartbeats go to
	former   int32 // the last other broker that was
	logBytes int64 // of metadata applied since the last snapshot
}

// joinRetry is the pause before a registration that failed is tried again.
const joinRetry = 50 * time.Millisecond

// Names of the listeners in a broker's registration.
const (
	clientListener = "PLAINTEXT"
	peerListener   = "PEER"
)

// join registers this broker with the controller: a new broker epoch for each life (rule 9).
func (b *Broker) join() {
	m := &b.membership
	if m.epoch >= 0 || m.joining || b.stopping {
		return
	}
	b.timers.cancel(m.retry)
	m.joining = true
	b.askController(brokerPatience, b.registration(), func(resp kmsg.Response, err error) {
		m.joining = false
		code := errNotController
		if err == nil {
			code = resp.(*kmsg.BrokerRegistrationResponse).ErrorCode
		}
		if code != errNone {
			b.refused(code)
			m.retry = b.timers.set(b.now.Add(joinRetry), b.join)
			return
		}
		b.joined(resp.(*kmsg.BrokerRegistrationResponse).BrokerEpoch)
	})
}

// refused tells the operator once why this broker is not registered, however often it tries.
func (b *Broker) refused(code int16) {
	if code == errNotController || code == b.membership.refused {
		return
	}
	b.membership.refused = code
	why := "the controller's log says why"
	if code == errDuplicateRegistration {
		why = "a process with this id was heard just now: it is taken for dead when its lease has run out"
	}
	b.log(Warn, "registration was refused, and is tried again", "code", code, "why", why)
}

func (b *Broker) registration() *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.Version = 4
	r.BrokerID = b.cfg.NodeID
	r.ClusterID = b.image.ClusterID()
	r.IncarnationID = b.cfg.Incarnation
	r.LogDirs = [][16]byte{b.cfg.LogDir}
	r.PreviousBrokerEpoch = b.lastEpoch()
	if b.settings.Rack != "" {
		rack := b.settings.Rack
		r.Rack = &rack
	}
	for _, e := range []controller.Endpoint{b.cfg.Advertised, b.cfg.Peer} {
		if e.Host == "" {
			continue
		}
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.Protocol
		r.Listeners = append(r.Listeners, l)
	}
	return r
}

// lastEpoch is the broker epoch up to whose end this broker has lost nothing, -1 if it cannot say (rule 9): its last one in
// this life; else, after a clean stop, the one under which the image knows it from the life before.
func (b *Broker) lastEpoch() int64 {
	self := b.image.Broker(b.cfg.NodeID)
	switch {
	case b.membership.last > 0:
		return b.membership.last
	case b.boot.Clean && self != nil:
		return self.Epoch
	}
	return -1
}

// joined begins the life under a broker epoch: heartbeats, a lease, and the replicas' roles.
func (b *Broker) joined(epoch int64) {
	b.membership.epoch, b.membership.last, b.membership.roles = epoch, epoch, false
	b.membership.refused = errNone
	if b.soleVoter() {
		// Nobody else can move a partition: what is decided is decided in this very process. So there is
		// nothing that a lease would guard against.
		b.lease.Until = core.Never
	}
	b.log(Info, "registered", "broker", b.cfg.NodeID, "epoch", epoch, "cluster", b.image.ClusterID())
	b.takeRoles()
	b.heartbeat()
	if b.retention == nil {
		b.retention = b.timers.set(b.now.Add(b.settings.RetentionCheckInterval), b.retain)
		b.compaction = b.timers.set(b.now.Add(b.settings.CleanerBackoff), b.compactAll)
	}
}

// knowsItself says that this life of the broker is registered, and that the image has got as far as that: what the image says of
// partitions was decided for this life, and no longer for an earlier one (rule 9).
func (b *Broker) knowsItself() bool {
	self := b.image.Broker(b.cfg.NodeID)
	return b.membership.epoch >= 0 && self != nil && self.Epoch == b.membership.epoch
}

// takeRoles tells all replicas their roles, once they can be known. The answer to a registration often comes before its records do;
// and those that take partitions from the earlier life come with it, in one batch, so this is called when a batch is through.
func (b *Broker) takeRoles() {
	if b.membership.roles || !b.knowsItself() {
		return
	}
	b.membership.roles = true
	for st := range b.image.AllPartitions() {
		if p := b.parts[st.Partition]; p != nil {
			b.applyState(p)
		}
	}
}

// heartbeat renews the lease and tells the controller how far this broker is. While logs are still being opened it asks to stay fenced.
func (b *Broker) heartbeat() {
	m := &b.membership
	b.timers.cancel(m.beat)
	m.beat = b.timers.set(b.now.Add(b.settings.HeartbeatInterval), b.heartbeat)
	if m.epoch < 0 || m.beating {
		return
	}
	m.beating = true
	r := kmsg.NewPtrBrokerHeartbeatRequest()
	r.Version = 1
	r.BrokerID, r.BrokerEpoch = b.cfg.NodeID, m.epoch
	r.CurrentMetadataOffset = b.image.Next() - 1
	r.WantFence = !m.ready && m.opening > 0 // logs of new topics are opened while the others serve
	r.WantShutdown = b.stopping
	sent := b.now
	b.askController(brokerPatience, r, func(resp kmsg.Response, err error) {
		m.beating = false
		if err == nil {
			b.onHeartbeat(sent, resp.(*kmsg.BrokerHeartbeatResponse))
		}
	})
}

// followController turns to a new controller at once: the lease is to be renewed there, and the old one may never answer.
func (b *Broker) followController() {
	m := &b.membership
	if id := b.controllerID(); id != m.boss {
		m.boss = id
		if id >= 0 && id != b.cfg.NodeID {
			m.former = id
		}
		if id >= 0 && m.epoch >= 0 {
			m.beating = false
			b.heartbeat()
		}
	}
}

func (b *Broker) onHeartbeat(sent core.Time, r *kmsg.BrokerHeartbeatResponse) {
	m := &b.membership
	switch r.ErrorCode {
	case errNone:
	case errStaleBrokerEpoch, errBrokerIDNotRegistered:
		b.log(Warn, "the controller does not know this broker any more; registering again", "code", r.ErrorCode)
		m.epoch = -1
		b.lease.Until = 0
		b.join()
		return
	default:
		return
	}
	if !b.soleVoter() && !r.IsFenced {
		// Counted from when the heartbeat was sent, so it ends no later than the controller believes (section 5), and no later
		// than a successor of the controller believes, who knows only when it was elected.
		b.renewLease(sent.Add(b.settings.Lease - controller.SpentLease(r)))
	}
	if r.ShouldShutdown {
		b.finishStop()
	}
	b.maybeReady()
}

// renewLease lets this broker answer as a leader until an instant. If it could not for a while, what waited is looked at again.
func (b *Broker) renewLease(until core.Time) {
	ran := !b.lease.Valid(b.now)
	if ran {
		b.groupsLeased()
	}
	if b.lease.Until = max(b.lease.Until, until); !ran || !b.lease.Valid(b.now) {
		return
	}
	for st := range b.image.AllPartitions() {
		if p := b.local(st.Partition); p != nil {
			p.replica.Resume(b.now, &b.rout)
			b.carryOut(p)
		}
	}
}

// knowsCluster says whether the image has held this process's registration, so all that was committed before it. Until then the image
// may lack topics that are there, or hold nothing at all: a client that is told so drops what it subscribes to, or fails its records.
func (b *Broker) knowsCluster() bool {
	m := &b.membership
	m.current = m.current || b.knowsItself()
	return m.current
}

// unknownCluster is why a question about the cluster finds no answer: what clients do about it is to ask another broker.
const unknownCluster = "this broker has not joined its cluster yet"

// opened goes on with what waited for the last log to be open: unfencing, whose heartbeat is sent at once, and new topics.
func (b *Broker) opened() {
	m := &b.membership
	if m.opening > 0 {
		return
	}
	if m.epoch >= 0 && !m.ready {
		b.heartbeat()
	}
	b.wakeCreations()
}

// maybeReady emits Ready when the broker is unfenced and has all it was to open.
func (b *Broker) maybeReady() {
	m := &b.membership
	if m.ready || m.epoch < 0 || m.opening > 0 {
		return
	}
	if self := b.image.Broker(b.cfg.NodeID); self != nil && self.Epoch == m.epoch && !self.Fenced {
		if own := b.boot.ClusterID; own != "" && own != b.image.ClusterID() {
			b.fatal("the data directory is of another cluster", fmt.Errorf("it belongs to cluster %s, and this is cluster %s", own, b.image.ClusterID()))
			return
		}
		m.ready = true
		b.out.Add(Ready{ClusterID: b.image.ClusterID()})
		b.removeStrays()
	}
}

// removeStrays deletes logs that were in the directory and are none of this broker's any more: of topics whose deletion
// a crash cut off, or that were deleted while it was down. The image holds all that was decided before this broker was
// unfenced. A directory that is not known to be of this cluster is left as it is.
func (b *Broker) removeStrays() {
	if b.boot.ClusterID == "" {
		return
	}
	strays := 0
	for _, id := range b.boot.Logs {
		st := b.image.Partition(id)
		if id != core.MetadataPartition && (st == nil || !slices.Contains(st.Replicas, b.cfg.NodeID)) {
			b.out.Add(DeleteLog{Log: id})
			strays++
		}
	}
	b.boot.Logs = nil
	if strays > 0 {
		b.log(Info, "logs of deleted topics were left over, and are removed", "logs", strays)
	}
}

// beginStop hands leadership over before a clean stop, if there is anybody to take it.
func (b *Broker) beginStop() {
	if b.stopping {
		return
	}
	b.stopping = true
	if b.membership.epoch < 0 || b.image.BrokerCount() <= 1 || !b.settings.ControlledShutdown {
		b.finishStop()
		return
	}
	b.timers.set(b.now.Add(b.settings.ShutdownGrace), b.finishStop)
	b.membership.beating = false
	b.heartbeat()
}

func (b *Broker) finishStop() {
	if !b.stopping || b.stopped {
		return
	}
	for st := range b.image.AllPartitions() {
		if p := b.local(st.Partition); p != nil {
			b.saveProducers(p)
		}
	}
	b.stepQuorum(func(q *quorumCall) { q.Resign(b.now, q.out) })
	b.stop(nil)
}

// endpoint returns where clients reach a broker.
func (b *Broker) endpoint(id int32) (kmsg.MetadataResponseBroker, bool) {
	br := b.image.Broker(id)
	if br == nil {
		return kmsg.MetadataResponseBroker{}, false
	}
	return metadataBroker(br)
}

func metadataBroker(br *controller.Broker) (kmsg.MetadataResponseBroker, bool) {
	e, ok := br.Endpoint(clientListener)
	if !ok {
		return kmsg.MetadataResponseBroker{}, false
	}
	n := kmsg.NewMetadataResponseBroker()
	n.NodeID, n.Host, n.Port = br.ID, e.Host, int32(e.Port)
	if br.Rack != "" {
		rack := br.Rack
		n.Rack = &rack
	}
	return n, true
}

// controllerID is the broker that clients should take for the controller: the quorum's leader where it is known.
func (b *Broker) controllerID() int32 {
	if b.quorum == nil {
		return quorum.None
	}
	id, _ := b.quorum.Leader()
	return id
}
