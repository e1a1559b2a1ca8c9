package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeLogDirs answers with the size of each replica's log in the one data directory (KIP-113, KIP-827).
func handleDescribeLogDirs(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeLogDirsRequest)
	resp := m.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	b.out.Add(MeasureLogs{Token: b.ask(func(in Input) {
		r := in.(LogsMeasured)
		d := kmsg.NewDescribeLogDirsResponseDir()
		d.Dir, d.TotalBytes, d.UsableBytes = b.settings.LogDir, r.Total, r.Free
		if r.Err != nil {
			d.ErrorCode = errStorage
		} else {
			b.describeLogs(&d, m, r.Sizes)
		}
		resp.Dirs = append(resp.Dirs, d)
		b.respond(q, resp)
	})})
}

func (b *Broker) describeLogs(d *kmsg.DescribeLogDirsResponseDir, m *kmsg.DescribeLogDirsRequest, sizes []LogSize) {
	asked := map[string][]int32{}
	for i := range m.Topics {
		asked[m.Topics[i].Topic] = m.Topics[i].Partitions
	}
	for _, s := range sizes {
		p := b.parts[s.Log]
		if p == nil {
			continue
		}
		if m.Topics != nil && !slices.Contains(asked[p.topic], s.Log.Index) {
			continue
		}
		r := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		r.Partition, r.Size = s.Log.Index, s.Size
		t := logDirTopic(d, p.topic)
		t.Partitions = append(t.Partitions, r)
	}
}

// logDirTopic returns the last topic of d, which is the asked one's since sizes are sorted, or adds it.
func logDirTopic(d *kmsg.DescribeLogDirsResponseDir, topic string) *kmsg.DescribeLogDirsResponseDirTopic {
	if n := len(d.Topics); n == 0 || d.Topics[n-1].Topic != topic {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = topic
		d.Topics = append(d.Topics, t)
	}
	return &d.Topics[len(d.Topics)-1]
}
