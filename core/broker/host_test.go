package broker

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// host carries out a broker's effects at once, over logs that are slices of batches: enough of a world to see
// what the broker answers. Storage and the wire are tested elsewhere.
type host struct {
	t        *testing.T
	net      *network // nil for a broker alone
	b        *Broker
	now      core.Time
	inbox    []Input
	logs     map[core.Partition]*memLog
	answers  map[uint64]Respond
	closed   map[ConnID]string
	seq      uint64
	ready    bool
	stop     *Stop
	fail     error                         // of the next appends
	holdSync bool                          // report Written, not Durable
	syncTime time.Duration                 // in a network: from Written to Durable
	holdOpen bool                          // do not answer OpenLog
	noRoom   bool                          // answer it so
	compacts []Compact                     // asked for; the test answers
	settings map[core.Partition]log.Config // of each log
}

type memLog struct {
	start, end int64
	batches    []record.Batch
	failed     bool
}

const wall = core.WallMillis(1_700_000_000_000)

func newHost(t *testing.T, settings map[string]string) *host {
	h := bootHost(t, settings, Boot{})
	require.True(t, h.ready, "broker did not become ready")
	return h
}

// bootHost starts a broker on what a data directory holds, and returns when it is ready or has stopped.
func bootHost(t *testing.T, settings map[string]string, boot Boot) *host {
	h := &host{t: t, logs: map[core.Partition]*memLog{}, settings: map[core.Partition]log.Config{}, answers: map[uint64]Respond{}, closed: map[ConnID]string{}}
	h.b = New(Config{
		NodeID:      1,
		Static:      config.NewValues(settings),
		Advertised:  controller.Endpoint{Name: clientListener, Host: "127.0.0.1", Port: 9092},
		Incarnation: [16]byte{1},
		Rand:        rand.NewPCG(1, 2),
	}, boot)
	for _, id := range boot.Logs {
		h.logs[id] = &memLog{}
	}
	h.step(Start{Wall: wall})
	for range 100 { // elections and heartbeats take time
		if h.ready || h.stop != nil {
			break
		}
		h.pass()
	}
	return h
}

// pass lets time go on to the broker's next deadline.
func (h *host) pass() {
	if d := h.b.Deadline(); d != core.Never {
		h.now = max(h.now, d)
	}
	h.step(Tick{Wall: wall})
}

func (h *host) step(in Input) {
	h.inbox = append(h.inbox, in)
	for len(h.inbox) > 0 {
		in := h.inbox[0]
		h.inbox = h.inbox[1:]
		var out Effects
		h.b.Step(h.now, in, &out)
		for _, e := range out.List {
			h.do(e)
		}
	}
}

func (h *host) tell(in Input) { h.inbox = append(h.inbox, in) }

func (h *host) do(e Effect) {
	switch e := e.(type) {
	case ConfigureLog:
		h.settings[e.Log] = e.Config
	case OpenLog:
		h.settings[e.Log] = e.Config
		if h.noRoom {
			h.tell(LogOpened{Log: e.Log, Err: errors.New("no space left on device"), Later: true})
			return
		}
		if h.logs[e.Log] == nil {
			h.logs[e.Log] = &memLog{}
		}
		if h.holdOpen {
			return
		}
		h.tell(LogOpened{Log: e.Log, State: log.State{Producers: log.NewProducers(0)}})
	case Append:
		h.append(e)
	case Truncate:
		l := h.logs[e.Log]
		for len(l.batches) > 0 && l.batches[len(l.batches)-1].LastOffset() >= e.To {
			l.batches = l.batches[:len(l.batches)-1]
		}
		l.end, l.failed = e.To, false
		h.tell(Truncated{Log: e.Log, End: e.To})
	case ResetLog:
		h.logs[e.Log] = &memLog{start: e.Start, end: e.Start}
		h.tell(Truncated{Log: e.Log, End: e.Start})
	case SetStart:
		l := h.logs[e.Log]
		if l.start = e.Start; e.Start > l.end {
			l.batches, l.end = nil, e.Start
		}
		h.tell(StartMoved{Log: e.Log, Start: e.Start})
	case DeleteLog:
		delete(h.logs, e.Log)
		h.tell(LogDeleted{Log: e.Log})
	case Compact:
		h.compacts = append(h.compacts, e)
	case ReadLog:
		var found []record.Batch
		for _, b := range h.logs[e.Log].batches {
			if b.NextOffset() > e.From && b.BaseOffset() < e.Limit {
				found = append(found, b)
			}
		}
		h.tell(LogRead{Token: e.Token, Batches: found})
	case LookupTime:
		h.tell(h.logs[e.Log].lookup(e))
	case SaveState:
		h.tell(StateSaved{Token: e.Token})
	case SaveSnapshot:
		h.tell(SnapshotSaved{Token: e.Token})
	case MeasureLogs:
		h.tell(LogsMeasured{Token: e.Token, Total: 1 << 30, Free: 1 << 29})
	case Respond:
		if h.net != nil && e.Conn >= peerConns {
			h.net.answer(h, e)
			return
		}
		h.answers[e.Seq] = e
	case Call:
		h.net.call(h, e)
	case CloseConn:
		h.closed[e.Conn] = e.Reason
		if h.net != nil && e.Conn >= peerConns {
			h.net.refuse(e.Conn)
		}
	case Ready:
		h.ready = true
	case Stop:
		h.stop = &e
	}
}

func (h *host) append(e Append) {
	l := h.logs[e.Log]
	if h.fail != nil && e.Log != core.MetadataPartition && !l.failed {
		l.failed = true
		h.tell(AppendFailed{Log: e.Log, End: l.end, Err: h.fail})
	}
	if l.failed {
		return
	}
	for _, b := range e.Batches {
		require.Equal(h.t, l.end, b.BaseOffset(), "offsets have no gaps")
		l.batches = append(l.batches, b)
		l.end = b.NextOffset()
	}
	h.tell(Written{Log: e.Log, End: l.end})
	switch {
	case h.holdSync && e.Log != core.MetadataPartition:
	case h.syncTime > 0:
		h.net.sendIn(h.syncTime, h, Durable{Log: e.Log, End: l.end})
	default:
		h.tell(Durable{Log: e.Log, End: l.end})
	}
}

func (l *memLog) lookup(e LookupTime) TimeFound {
	for _, b := range l.batches {
		for r, err := range b.Records(nil, record.Limits{}) {
			if err == nil && r.Offset < e.Limit && r.Timestamp >= e.Timestamp {
				return TimeFound{Token: e.Token, Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: b.LeaderEpoch()}
			}
		}
	}
	return TimeFound{Token: e.Token, Offset: -1, Timestamp: -1, LeaderEpoch: -1}
}

// send gives the broker a request on connection 1 and returns its number.
func (h *host) send(req kmsg.Request, batches ...record.Checked) uint64 {
	seq := h.seq
	h.seq++
	h.step(Request{Conn: 1, Seq: seq, Wall: wall, Msg: req, Batches: batches})
	return seq
}

// answer returns the answer to request seq, letting time pass until it is there.
func (h *host) answer(seq uint64) Respond {
	for range 1000 {
		if r, ok := h.answers[seq]; ok {
			return r
		}
		h.pass()
	}
	require.Fail(h.t, "no answer", "request %d", seq)
	return Respond{}
}

// ask sends a request and returns its answer.
func ask[T kmsg.Response](h *host, req kmsg.Request, batches ...record.Checked) T {
	h.t.Helper()
	return h.answer(h.send(req, batches...)).Msg.(T)
}
