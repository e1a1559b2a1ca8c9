package linearizability

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// line is one line of a saved history: an operation, or the truth of one partition.
type line struct {
	*Op
	Truth *truthLine `json:"truth,omitempty"`
}

type truthLine struct {
	Topic     string   `json:"t"`
	Partition int32    `json:"n"`
	Start     int64    `json:"start"`
	End       int64    `json:"end"`
	Records   []Record `json:"recs,omitempty"`
}

// Write saves the history as JSON lines: one for each operation in order, then one for each partition's truth.
func (h *History) Write(w io.Writer) error {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	for i := range h.Ops {
		if err := enc.Encode(line{Op: &h.Ops[i]}); err != nil {
			return fmt.Errorf("writing operation %d: %w", i, err)
		}
	}
	keys, _ := h.partitions()
	for _, k := range keys {
		t, ok := h.Truth[k]
		if !ok {
			continue
		}
		l := &truthLine{k.Topic, k.Partition, t.Start, t.End, t.Records}
		if err := enc.Encode(line{Truth: l}); err != nil {
			return fmt.Errorf("writing the truth of %s: %w", k, err)
		}
	}
	return buf.Flush()
}

// Read loads a history that Write saved.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	br := bufio.NewReader(r)
	for n := 1; ; n++ {
		text, err := br.ReadBytes('\n')
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := h.readLine(text); err != nil {
				return nil, fmt.Errorf("history, line %d: %w", n, err)
			}
		}
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history, line %d: %w", n, err)
		}
	}
}

func (h *History) readLine(text []byte) error {
	l := line{Op: &Op{}}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return err
	}
	if t := l.Truth; t != nil {
		if h.Truth == nil {
			h.Truth = map[Key]Truth{}
		}
		h.Truth[Key{t.Topic, t.Partition}] = Truth{t.Start, t.End, t.Records}
		return nil
	}
	h.Ops = append(h.Ops, *l.Op)
	return nil
}
