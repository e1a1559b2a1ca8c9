package node

import (
	"errors"
	"io"
	"time"

	"lockstep/disk/segment"
	"lockstep/net/kafka"
	"lockstep/net/tcp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are the figures that /metrics serves. Labels are API names and
// outcomes only, so that their number does not grow with topics or clients.
type metrics struct {
	registry *prometheus.Registry

	latency  []prometheus.Observer // by API key: from the frame's arrival to the answer's departure
	bytesIn  prometheus.Counter
	bytesOut prometheus.Counter
	records  prometheus.Counter
	rejected prometheus.Counter
	steps    prometheus.Counter
	stepTime prometheus.Counter
	slowest  prometheus.Histogram
	syncs    prometheus.Histogram
	opens    prometheus.Histogram

	compactions        prometheus.Counter
	compactionSeconds  prometheus.Counter
	compactionBytes    prometheus.Counter
	compactionFreed    prometheus.Counter
	compactionFailures prometheus.Counter

	dropped *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "lockstep_" + name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, start float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lockstep_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(start, 4, 10)})
		m.registry.MustRegister(h)
		return h
	}
	m.bytesIn = counter("request_bytes_total", "Bytes of requests received.")
	m.bytesOut = counter("response_bytes_total", "Bytes of responses sent, records included.")
	m.records = counter("produced_records_total", "Records received that passed the checks.")
	m.rejected = counter("rejected_batches_total", "Batches received that did not pass the checks.")
	m.steps = counter("core_steps_total", "Inputs given to the core.")
	m.stepTime = counter("core_step_seconds_total", "Time the core's goroutine was busy.")
	m.slowest = histogram("core_step_seconds", "Time of one step of the core, averaged over those made in one go.", 1e-6)
	m.syncs = histogram("sync_seconds", "Time of one round of syncs (group commit).", 50e-6)
	m.opens = histogram("log_open_seconds", "Time to open one log.", 50e-6)
	m.compactions = counter("compactions_total", "Runs of compaction that found it was time.")
	m.compactionSeconds = counter("compaction_seconds_total", "Time of those runs, waiting for log.cleaner.io.max.bytes.per.second included.")
	m.compactionBytes = counter("compaction_io_bytes_total", "Bytes of segments that compaction has read and written.")
	m.compactionFreed = counter("compaction_freed_bytes_total", "Bytes of segments that compaction has taken out of logs.")
	m.compactionFailures = counter("compaction_failures_total", "Runs of compaction that failed, to be tried again.")
	m.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lockstep_connections_dropped_total",
		Help: "Connections that the broker closed, by reason."}, []string{"reason"})
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lockstep_request_seconds",
		Help:    "Time from a request's arrival to its answer's departure, waiting included.",
		Buckets: prometheus.ExponentialBuckets(100e-6, 4, 9)}, []string{"api"})
	m.registry.MustRegister(m.dropped, latency, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, a := range kafka.APIs() {
		key := int(a.Key.Int16())
		for len(m.latency) <= key {
			m.latency = append(m.latency, nil)
		}
		m.latency[key] = latency.WithLabelValues(a.Key.Name())
	}
	return m
}

// gauge registers a figure that is asked for when it is looked at.
func (m *metrics) gauge(name, help string, get func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lockstep_" + name, Help: help}, get))
}

// received counts a request that was decoded.
func (m *metrics) received(r *kafka.Request, bytes int) {
	m.bytesIn.Add(float64(bytes + 4))
	if r.Key != kmsg.Produce.Int16() {
		return
	}
	records, rejected := 0, 0
	for i := range r.Batches {
		if r.Batches[i].Err != nil {
			rejected++
		} else {
			records += int(r.Batches[i].Batch.Count())
		}
	}
	m.records.Add(float64(records))
	if rejected > 0 {
		m.rejected.Add(float64(rejected))
	}
}

// sent counts the bytes of a response.
func (m *metrics) sent(bytes int) { m.bytesOut.Add(float64(bytes)) }

// answered observes how long a request took in all.
func (m *metrics) answered(r *request) {
	if o := m.latency[r.header.Key]; o != nil {
		o.Observe(time.Since(r.began).Seconds())
	}
}

// stepped observes a number of steps that took d together.
func (m *metrics) stepped(n int, d time.Duration) {
	m.steps.Add(float64(n))
	m.stepTime.Add(d.Seconds())
	m.slowest.Observe(d.Seconds() / float64(n))
}

func (m *metrics) synced(d time.Duration) { m.syncs.Observe(d.Seconds()) }
func (m *metrics) opened(d time.Duration) { m.opens.Observe(d.Seconds()) }

// dropReasons make few words of why a connection broke or was closed.
var dropReasons = []struct {
	err  error
	name string
}{
	{tcp.ErrFrameSize, "frame size"},
	{tcp.ErrStalled, "stalled"},
	{tcp.ErrSlowSender, "slow sender"},
	{tcp.ErrSlowReader, "slow reader"},
	{tcp.ErrIdle, "idle"},
	{kafka.ErrMalformed, "malformed"},
	{kafka.ErrNotServed, "not served"},
	{errCore, "refused"},
	{io.ErrUnexpectedEOF, "cut off"},
}

const networkReason = "network"

func dropReason(err error) string {
	for _, r := range dropReasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return networkReason
}

// registerGauges adds the figures that are looked up when somebody asks.
func (n *Node) registerGauges() {
	m := n.metrics
	m.gauge("connections", "Open connections of clients.", func() float64 {
		conns := 0
		for _, s := range n.clients {
			conns += s.Conns()
		}
		return float64(conns)
	})
	m.gauge("inbox_length", "Inputs that wait for the core.", func() float64 { return float64(n.inbox.len()) })
	m.gauge("busy_logs", "Logs with effects that wait to be carried out.", func() float64 { return float64(n.storage.backlog()) })
	m.gauge("request_memory_bytes", "Memory of requests in flight (queued.max.request.bytes).", func() float64 {
		if n.budget == nil {
			return 0
		}
		return float64(n.budget.Used())
	})
	m.gauge("request_memory_waiting", "Requests that wait for memory.", func() float64 {
		if n.budget == nil {
			return 0
		}
		return float64(n.budget.Waiting())
	})
	m.gauge("logs", "Logs on this broker.", func() float64 { return float64(len(n.storage.logs())) })
	sum := func(of func(*segment.Log) int64) func() float64 {
		return func() float64 {
			total := int64(0)
			for _, id := range n.storage.logs() {
				if l := n.store.Log(id); l != nil {
					total += of(l)
				}
			}
			return float64(total)
		}
	}
	m.gauge("log_size_bytes", "Bytes of all logs.", sum((*segment.Log).Size))
	m.gauge("log_unsynced_bytes", "Bytes of all logs that no sync has covered.", sum((*segment.Log).UnsyncedBytes))
	m.gauge("log_end_offsets", "Log end offsets of all logs, added up.", sum(func(l *segment.Log) int64 {
		_, end := l.Bounds()
		return end
	}))
}
