package quorum

import (
	"fmt"

	"lockstep/core"
)

// truncate cuts the log's tail. Until that is durable nothing is fetched (rule 16).
func (q *Quorum) truncate(to int64, out *Out) {
	q.log.truncate(to)
	q.written, q.durable = min(q.written, to), min(q.durable, to)
	q.truncating++
	q.truncateTo = to
	out.Log = append(out.Log, Truncate{To: to})
}

// resetLog begins the log anew at the end of a snapshot.
func (q *Quorum) resetLog(id SnapshotID, out *Out) {
	q.log.reset(id)
	q.hw, q.written, q.durable = id.Offset, id.Offset, id.Offset
	q.truncating++
	q.truncateTo = id.Offset
	out.Log = append(out.Log, Reset{Start: id.Offset})
}

// Truncated answers Truncate and Reset.
func (q *Quorum) Truncated(now core.Time, end int64, out *Out) {
	q.truncating--
	if q.truncating > 0 {
		return
	}
	if end != q.truncateTo {
		q.fatal(out, fmt.Errorf("metadata log was truncated to offset %d and ends at %d", q.truncateTo, end))
		return
	}
	q.durable, q.written = end, end // a log that was cut durably ends there
	if q.role == leader {
		q.advance(now, out)
		return
	}
	q.fetchNow(now, out)
}

// Written says that the log's appends up to end are in the file.
func (q *Quorum) Written(now core.Time, end int64, out *Out) {
	if q.truncating > 0 {
		return // said of a log that is being cut
	}
	q.written = max(q.written, min(end, q.log.end))
	if q.role == leader {
		q.wakeFetches(now, out)
	} else {
		q.followHighWatermark(out)
	}
}

// Durable says that the log's appends up to end are durable (and written).
func (q *Quorum) Durable(now core.Time, end int64, out *Out) {
	if q.truncating > 0 {
		return // said of a log that is being cut: what is durable there need not be ours
	}
	q.durable = max(q.durable, min(end, q.log.end))
	q.Written(now, end, out)
	if q.role == leader {
		q.advance(now, out)
		return
	}
	q.fetchNow(now, out)
}

// AppendFailed says that the log could not be appended to and ends at end. The rest is taken back, and the
// host is told to truncate so that it accepts appends again.
func (q *Quorum) AppendFailed(now core.Time, end int64, err error, out *Out) {
	if end >= q.log.end {
		return // it was to be cut anyway
	}
	note(out, Warn, "metadata log could not be appended to", "offset", end, "err", err)
	if end < q.hw {
		q.fatal(out, fmt.Errorf("metadata log ends at offset %d, but all below %d is committed: %w", end, q.hw, err))
		return
	}
	seen := end < q.written
	q.truncate(end, out)
	switch {
	case q.role == leader && (seen || end <= q.lead.epochStart):
		// Others may have what is gone here, and in one term an offset is given only once (rule 1).
		q.stepDown(now, out)
	case q.role == leader:
		out.ProposalsDropped, out.DroppedFrom = true, end
	default:
		q.fetch.at = now.Add(10 * q.cfg.Retry)
	}
}
