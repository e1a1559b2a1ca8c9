package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"lockstep/interop/agent"
)

// tools drives Kafka's command line tools, one call of a tool's main method for each thing to do, all in one JVM.
type tools struct {
	*process
	addr string
	dir  string
}

func openTools(in *installer, addr string) (session, error) {
	p, err := startJava(in, addr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kafka-tools-")
	return &tools{process: p, addr: addr, dir: dir}, err
}

func (t *tools) Close() {
	t.process.Close()
	os.RemoveAll(t.dir)
}

// toolErrors are the exceptions that tools print for the errors that rows ask for.
var toolErrors = map[string]int{"UnknownTopicOrPartitionException": unknownTopicOrPartition, "TopicExistsException": topicAlreadyExists,
	"InvalidConfigurationException": invalidConfig, "InvalidPartitionsException": invalidPartitions, "RecordTooLargeException": messageTooLarge,
	"OffsetOutOfRangeException": offsetOutOfRange,
	// Of some errors the tools print the broker's text only.
	"already exists.": topicAlreadyExists, "would not be an increase": invalidPartitions, "Invalid value ": invalidConfig}

// tool runs one and returns what it printed; an error that it printed is an *agent.Error.
func (t *tools) tool(class, input string, args ...string) (string, error) {
	r, err := ask(t.process, agent.Request{Op: "tool", Class: class, Input: input, Args: append([]string{"--bootstrap-server", t.addr}, args...)})
	if err != nil {
		return "", err
	}
	for name, code := range toolErrors {
		if strings.Contains(r.Output, name) {
			return r.Output, &agent.Error{Code: code, Text: r.Output}
		}
	}
	if r.Exit != 0 || strings.Contains(r.Output, "Exception") {
		return r.Output, &agent.Error{Code: -1, Text: fmt.Sprintf("%s ended with %d: %s", class, r.Exit, r.Output)}
	}
	return r.Output, nil
}

func (t *tools) Do(q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "hello":
		return t.process.Do(q)
	case "create":
		args := []string{"--create", "--topic", q.Topic, "--partitions", fmt.Sprint(q.Partitions)}
		for k, v := range q.Config {
			args = append(args, "--config", k+"="+v)
		}
		_, err = t.tool("TopicCommand", "", args...)
	case "describe":
		out, e := t.tool("TopicCommand", "", "--describe", "--topic", q.Topic)
		if err = e; strings.Contains(out, "does not exist as expected") {
			err = &agent.Error{Code: unknownTopicOrPartition, Text: out} // the tool's own finding
		}
		r.Partitions = int32(number(out, `PartitionCount: (\d+)`))
	case "grow":
		_, err = t.tool("TopicCommand", "", "--alter", "--topic", q.Topic, "--partitions", fmt.Sprint(q.Partitions))
	case "delete":
		out, e := t.tool("TopicCommand", "", "--delete", "--topic", q.Topic)
		if err = e; strings.Contains(out, "does not exist as expected") {
			err = &agent.Error{Code: unknownTopicOrPartition, Text: out}
		}
	case "configs":
		return t.configs(q)
	case "alter":
		for k, v := range q.Config {
			_, err = t.tool("ConfigCommand", "", "--alter", "--entity-type", "topics", "--entity-name", q.Topic, "--add-config", k+"="+v)
		}
	case "offset":
		out, e := t.tool("GetOffsetShell", "", "--topic-partitions", fmt.Sprintf("%s:%d", q.Topic, q.Partition), "--time", fmt.Sprint(q.Time))
		// Where no record is that late the tool prints no number.
		if r.Offset, err = number(out, `:\d+:(\d+)`), e; !strings.Contains(out, q.Topic+":") {
			r.Offset = -1
		}
	case "trim":
		return t.trim(q)
	case "produce":
		return t.produce(q)
	case "read":
		return t.read(q)
	default:
		return agent.Gap("not asked of the tools")
	}
	if e, reported := err.(*agent.Error); reported {
		return agent.Response{Error: e}, nil
	}
	return r, err
}

func number(text, pattern string) int64 {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n
}

func reported(r agent.Response, err error) (agent.Response, error) {
	if e, is := err.(*agent.Error); is {
		return agent.Response{Error: e}, nil
	}
	return r, err
}

func (t *tools) configs(q agent.Request) (r agent.Response, err error) {
	out, err := t.tool("ConfigCommand", "", "--describe", "--all", "--entity-type", "topics", "--entity-name", q.Topic)
	if err != nil {
		return reported(r, err)
	}
	r.Config = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s*(\S+?)=(\S*) sensitive=`).FindAllStringSubmatch(out, -1) {
		r.Config[m[1]] = m[2]
	}
	return r, nil
}

func (t *tools) trim(q agent.Request) (r agent.Response, err error) {
	text, err := json.Marshal(map[string]any{"version": 1, "partitions": []map[string]any{{"topic": q.Topic, "partition": q.Partition, "offset": q.Offset}}})
	if err != nil {
		return r, err
	}
	file, err := inTemp(t.dir, "trim.json", string(text))
	if err != nil {
		return r, err
	}
	out, err := t.tool("DeleteRecordsCommand", "", "--offset-json-file", file)
	r.Offset = number(out, `low_watermark: (\d+)`)
	return reported(r, err)
}

// produce writes through the console producer, whose null marker stands for null and whose headers are text.
func (t *tools) produce(q agent.Request) (r agent.Response, err error) {
	by := map[int32]*strings.Builder{}
	for _, rec := range q.Records {
		if by[rec.Partition] == nil {
			by[rec.Partition] = &strings.Builder{}
		}
		var hs []string
		for _, h := range rec.Headers {
			hs = append(hs, h.Key+":"+string(h.Value))
		}
		headers := strings.Join(hs, ",")
		if len(hs) == 0 {
			headers = nullMark
		}
		fmt.Fprintf(by[rec.Partition], "%s\t%s\t%s\n", headers, orNull(rec.Key), orNull(rec.Value))
	}
	for p, lines := range by {
		args := []string{"--topic", q.Topic, "--compression-codec", q.Codec, "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
			"--reader-property", "null.marker=" + nullMark, "--command-property", fmt.Sprintf("enable.idempotence=%v", q.Idempotent),
			"--command-property", fmt.Sprintf("partitioner.class=Agent$To%d", p), "--command-property", "linger.ms=50", "--max-block-ms", "10000"}
		if len(q.Records) == 1 {
			args = append(args, "--sync") // else the tool only logs what went wrong
		}
		if _, err := t.tool("ConsoleProducer", lines.String(), args...); err != nil {
			return reported(r, err)
		}
	}
	return r, nil
}

const nullMark = "<null>"

func orNull(b []byte) string {
	if b == nil {
		return nullMark
	}
	return string(b)
}

// What the console consumer prints between fields, headers and records; no record holds it.
const fieldEnd, headerEnd, lineEnd = "<|field|>", "<|header|>", "<|record|>"

// read parses what the console consumer prints.
func (t *tools) read(q agent.Request) (r agent.Response, err error) {
	args := []string{"--topic", q.Topic, "--partition", fmt.Sprint(q.Partition), "--offset", fmt.Sprint(q.Offset), "--max-messages", fmt.Sprint(q.Count),
		"--timeout-ms", "30000", "--command-property", "auto.offset.reset=none"}
	for k, v := range map[string]string{"print.timestamp": "true", "print.offset": "true", "print.headers": "true", "print.key": "true",
		"key.separator": fieldEnd, "headers.separator": headerEnd, "line.separator": lineEnd, "null.literal": nullMark} {
		args = append(args, "--formatter-property", k+"="+v)
	}
	out, err := t.tool("consumer.ConsoleConsumer", "", args...)
	if err != nil {
		return reported(r, err)
	}
	for _, line := range strings.SplitAfter(out, lineEnd) {
		line, whole := strings.CutSuffix(line, lineEnd)
		f := strings.Split(line, fieldEnd)
		if !whole || len(f) != 5 {
			continue // what the tool says at its end
		}
		rec := agent.Record{Partition: q.Partition, Timestamp: number(f[0], `Time:(\d+)`), Offset: number(f[1], `Offset:(\d+)`),
			Key: fromLatin1(f[3]), Value: fromLatin1(f[4])}
		for _, h := range strings.Split(f[2], headerEnd) {
			if k, v, found := strings.Cut(h, ":"); found {
				rec.Headers = append(rec.Headers, agent.Header{Key: k, Value: fromLatin1(v)})
			}
		}
		r.Records = append(r.Records, rec)
	}
	return r, nil
}

// fromLatin1 returns the bytes that the tool printed, of which each came as one character.
func fromLatin1(s string) []byte {
	if s == nullMark {
		return nil
	}
	b := make([]byte, 0, len(s))
	for _, c := range s {
		b = append(b, byte(c))
	}
	return b
}
