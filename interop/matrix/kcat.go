package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"lockstep/interop/agent"
)

// kcat drives the command line tool of that name: a process for each thing that it is asked to do.
type kcat struct {
	addr string
	dir  string
}

func openKcat(_ *installer, addr string) (session, error) {
	dir, err := os.MkdirTemp("", "kcat-")
	return &kcat{addr: addr, dir: dir}, err
}

func (k *kcat) Close() { os.RemoveAll(k.dir) }

func (k *kcat) Do(q agent.Request) (agent.Response, error) {
	var r agent.Response
	var err error
	switch q.Op {
	case "hello":
		out, _ := exec.Command("kcat", "-V").CombinedOutput() // it asks nobody
		r.Client = "kcat " + regexp.MustCompile(`Version ([\d.]+)`).FindString(string(out))
		if v := regexp.MustCompile(`librdkafka ([\d.]+)`).FindString(string(out)); v != "" {
			r.Client += " (" + v + ")"
		}
	case "describe":
		r, err = k.describe(q)
	case "produce":
		r, err = k.produce(q)
	case "read":
		r, err = k.read(q)
	case "offset":
		r, err = k.offset(q)
	default:
		return agent.Gap("the tool has no command for this")
	}
	var e *agent.Error
	if errors.As(err, &e) {
		return agent.Response{Error: e}, nil
	}
	return r, err
}

// kcatErrors are librdkafka's texts of the errors that rows ask for.
var kcatErrors = map[string]int{"Unknown topic or partition": unknownTopicOrPartition, "Message size too large": messageTooLarge,
	"Offset out of range": offsetOutOfRange}

func (k *kcat) run(input []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", append([]string{"-b", k.addr, "-X", "message.timeout.ms=20000"}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	for text, code := range kcatErrors {
		if strings.Contains(errs.String(), text) {
			return nil, &agent.Error{Code: code, Text: errs.String()}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("kcat: %w: %s", err, errs.String())
	}
	return out.Bytes(), nil
}

func (k *kcat) describe(q agent.Request) (r agent.Response, err error) {
	out, err := k.run(nil, "-L", "-t", q.Topic)
	if err != nil {
		return r, err
	}
	if strings.Contains(string(out), "Unknown topic or partition") {
		return r, &agent.Error{Code: unknownTopicOrPartition, Text: string(out)}
	}
	m := regexp.MustCompile(`with (\d+) partitions`).FindSubmatch(out)
	if m == nil {
		return r, fmt.Errorf("no partitions in %s", out)
	}
	n, _ := strconv.Atoi(string(m[1]))
	r.Partitions = int32(n)
	return r, nil
}

const keyEnd, recordEnd = "\x01\x01", "\x02\x02"

// produce runs kcat for each partition and each set of headers, which the tool takes for all its input.
func (k *kcat) produce(q agent.Request) (r agent.Response, err error) {
	for i := 0; i < len(q.Records); {
		first := q.Records[i]
		var input bytes.Buffer
		for ; i < len(q.Records); i++ {
			rec := q.Records[i]
			if rec.Partition != first.Partition || fmt.Sprint(rec.Headers) != fmt.Sprint(first.Headers) || isEmptyNotNull(rec.Key) != isEmptyNotNull(first.Key) ||
				isEmptyNotNull(rec.Value) != isEmptyNotNull(first.Value) {
				break
			}
			fmt.Fprintf(&input, "%s%s%s%s", rec.Key, keyEnd, rec.Value, recordEnd)
		}
		args := []string{"-P", "-t", q.Topic, "-p", fmt.Sprint(first.Partition), "-z", q.Codec, "-K", keyEnd, "-D", recordEnd}
		if !isEmptyNotNull(first.Key) && !isEmptyNotNull(first.Value) {
			args = append(args, "-Z") // an empty key or value is null
		}
		if q.Idempotent {
			args = append(args, "-X", "enable.idempotence=true")
		}
		for _, h := range first.Headers {
			args = append(args, "-H", h.Key+"="+string(h.Value))
		}
		if _, err := k.run(input.Bytes(), args...); err != nil {
			return r, err
		}
	}
	return r, nil // the tool does not tell offsets
}

func isEmptyNotNull(b []byte) bool { return b != nil && len(b) == 0 }

// read parses a format of lengths and bytes, so that bytes can be anything.
func (k *kcat) read(q agent.Request) (r agent.Response, err error) {
	out, err := k.run(nil, "-C", "-t", q.Topic, "-p", fmt.Sprint(q.Partition), "-o", fmt.Sprint(q.Offset), "-c", fmt.Sprint(q.Count), "-e", "-q",
		"-X", "auto.offset.reset=error", "-X", "check.crcs=true", "-f", `%o %T %K %S\n%k%s\n%h\n`)
	for err == nil && len(out) > 0 {
		rec := agent.Record{Partition: q.Partition}
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		var key, value int
		if _, err = fmt.Sscan(string(line), &rec.Offset, &rec.Timestamp, &key, &value); err != nil {
			return r, fmt.Errorf("%q: %w", line, err)
		}
		rec.Key, rest = cut(rest, key)
		rec.Value, rest = cut(rest, value)
		line, out, _ = bytes.Cut(rest[1:], []byte("\n"))
		for _, h := range strings.Split(string(line), ",") {
			if k, v, found := strings.Cut(h, "="); found {
				rec.Headers = append(rec.Headers, agent.Header{Key: k, Value: []byte(v)})
			}
		}
		r.Records = append(r.Records, rec)
	}
	return r, err
}

// cut takes n bytes, or null when n is -1.
func cut(b []byte, n int) (taken, rest []byte) {
	if n < 0 {
		return nil, b
	}
	return append([]byte{}, b[:n]...), b[n:]
}

func (k *kcat) offset(q agent.Request) (r agent.Response, err error) {
	out, err := k.run(nil, "-Q", "-t", fmt.Sprintf("%s:%d:%d", q.Topic, q.Partition, q.Time))
	if err != nil {
		return r, err
	}
	m := regexp.MustCompile(`offset (-?\d+)`).FindSubmatch(out)
	if m == nil {
		return r, fmt.Errorf("no offset in %q", out)
	}
	r.Offset, err = strconv.ParseInt(string(m[1]), 10, 64)
	return r, err
}

// inTemp writes a file that a tool is to read.
func inTemp(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
