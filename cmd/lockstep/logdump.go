package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/compress"
	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/record"
	"lockstep/disk/segment"

	"github.com/spf13/cobra"
)

func logCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "log", Short: "Look into the files of a data directory"}
	var records bool
	dump := &cobra.Command{Use: "dump FILE", Short: "Print a segment, an index, the checkpoints or the metadata log; every CRC is checked",
		Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			d := dumper{out: cmd.OutOrStdout(), json: o.json, records: records}
			return d.file(args[0])
		}}
	dump.Flags().BoolVarP(&records, "records", "r", false, "print the records of each batch, too")
	c.AddCommand(dump)
	return c
}

// dumper prints the content of one file. With json, one object a line.
type dumper struct {
	out           io.Writer
	json, records bool
}

// line prints one line: text for people, v for programs.
func (d *dumper) line(v any, format string, args ...any) error {
	if d.json {
		return json.NewEncoder(d.out).Encode(v)
	}
	_, err := fmt.Fprintf(d.out, format+"\n", args...)
	return err
}

func (d *dumper) file(path string) error {
	name := filepath.Base(path)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(name, ".log"):
		return d.segment(path)
	case strings.HasSuffix(name, ".index"):
		return d.index(path, name)
	case name == "checkpoints":
		return d.checkpoints(path)
	}
	return fmt.Errorf("%s is neither a segment (.log), an index (.index) nor a checkpoints file", path)
}

func (d *dumper) segment(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	metadata := strings.HasPrefix(filepath.Base(filepath.Dir(path)), core.MetadataTopic+"-")
	return segment.ScanFile(f, path, info.Size(), func(pos int64, b record.Batch) error {
		return d.batch(pos, b, metadata)
	})
}

// batchLine is one batch, as JSON.
type batchLine struct {
	Position      int64  `json:"position"`
	BaseOffset    int64  `json:"base_offset"`
	LastOffset    int64  `json:"last_offset"`
	LeaderEpoch   int32  `json:"leader_epoch"`
	Records       int32  `json:"records"`
	Bytes         int    `json:"bytes"`
	Codec         string `json:"codec"`
	MaxTimestamp  int64  `json:"max_timestamp"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	BaseSequence  int32  `json:"base_sequence"`
	Control       bool   `json:"control,omitempty"`
	Transactional bool   `json:"transactional,omitempty"`
}

func (d *dumper) batch(pos int64, b record.Batch, metadata bool) error {
	l := batchLine{pos, b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Count(), b.Size(), b.Codec().String(), b.MaxTimestamp(),
		b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Control(), b.Transactional()}
	flags := ""
	if l.Control {
		flags += " control"
	}
	if l.Transactional {
		flags += " transactional"
	}
	err := d.line(l, "@%d offsets %d-%d epoch %d records %d bytes %d codec %s time %s producer %d/%d sequence %d%s", l.Position,
		l.BaseOffset, l.LastOffset, l.LeaderEpoch, l.Records, l.Bytes, l.Codec, stamp(l.MaxTimestamp), l.ProducerID, l.ProducerEpoch,
		l.BaseSequence, flags)
	if err != nil || !d.records && !metadata {
		return err
	}
	for r, err := range b.Records(compress.Codecs{}, record.Limits{}) {
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", l.BaseOffset, err)
		}
		if err := d.record(r, metadata && !l.Control); err != nil {
			return err
		}
	}
	return nil
}

// recordLine is one record, as JSON.
type recordLine struct {
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"`
	Metadata  string `json:"metadata,omitempty"`
}

func (d *dumper) record(r record.Record, metadata bool) error {
	l := recordLine{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	if metadata {
		l.Metadata = controller.Describe(r.Value)
		return d.line(l, "  %d %s", l.Offset, l.Metadata)
	}
	return d.line(l, "  %d %s key %q value %q", l.Offset, stamp(l.Timestamp), l.Key, l.Value)
}

func stamp(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func (d *dumper) index(path, name string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	base, err := strconv.ParseInt(strings.TrimSuffix(name, ".index"), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not named after its base offset", path)
	}
	entries, damage := segment.ReadIndex(b, base)
	for _, e := range entries {
		if err := d.line(e, "offset %d at %d, before it times up to %s", e.Offset, e.Pos, stamp(e.MaxTimestamp)); err != nil {
			return err
		}
	}
	return damage
}

func (d *dumper) checkpoints(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	facts, damage := segment.ReadCheckpoints(b)
	for _, f := range facts {
		err := d.line(f, "%s recovery point %d start %d high watermark %d epochs %v compacted below %d", f.Partition, f.RecoveryPoint, f.Start, f.HighWatermark, f.Epochs, f.Compacted)
		if err != nil {
			return err
		}
	}
	return damage
}
