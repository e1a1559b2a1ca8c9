package sim

import (
	"lockstep/core/record"
	"strings"
)

// checkFiles reads the segment files of every log, by itself, and compares them
// with what was appended: each offset holds the very batch that the broker
// put there, and none is missing between the log's start and what is durable.
func (o *oracle) checkFiles(h *host) {
	if !h.ready {
		return
	}
	names := h.disk.Files()
	for _, t := range o.order {
		if t.host != h || t.gone || t.aside || h.harmed(t.name()) || h.w.failure != nil {
			continue
		}
		if t.of.may {
			o.checkCompacted(h, t)
		} else {
			o.checkLog(h, t, names)
		}
	}
}

func (o *oracle) checkLog(h *host, t *truth, names []string) {
	dir := t.name() + "/"
	at := 0 // index of the next batch expected
	seen, first := false, int64(0)
	end := int64(0)
	for _, name := range names {
		if !strings.HasPrefix(name, dir) || !strings.HasSuffix(name, ".log") {
			continue
		}
		content := h.disk.Written(name)
		batches, _, err := record.ParseAll(content)
		if err != nil && len(batches) == 0 && len(content) > 0 && !allZero(content) {
			h.w.fail("damage", "%s holds no batch: %v", name, err)
			return
		}
		for _, b := range batches {
			if !seen {
				seen, first = true, b.BaseOffset()
				for at < len(t.batches) && t.batches[at].base < first {
					at++
				}
			}
			if at == len(t.batches) || t.batches[at].base != b.BaseOffset() || t.batches[at].next != b.NextOffset() || t.batches[at].crc != crcOf(b) {
				h.w.fail("log differs", "%s: at offset %d is not the batch that was appended there", name, b.BaseOffset())
				return
			}
			at++
			end = b.NextOffset()
		}
	}
	switch {
	case seen && first > t.start && t.start < t.durable:
		h.w.fail("durable lost", "%s begins at %d in its files; its start is %d", t.name(), first, t.start)
	case end < t.durable && t.start < t.durable:
		h.w.fail("durable lost", "%s ends at %d in its files; up to %d was synced", t.name(), end, t.durable)
	}
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
