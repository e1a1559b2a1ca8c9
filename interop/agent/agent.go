// Package agent is what the matrix and the programs that drive a client library say to each other: one JSON request a line
// on the agent's standard input, one JSON answer a line on its standard output. A request names one thing that a client can
// do; the agent does it with its library in the way that the library's users do, and tells what came of it. Agents in other
// languages speak the same (python/base.py, node/agent.js, java/Agent.java).
//
// It imports the standard library only, because the agents of other modules use it.
package agent

import (
	"bufio"
	"encoding/json"
	"os"
)

// Request asks for one thing. Which fields count depends on Op:
//
//	create      Topic, Partitions, Config
//	describe    Topic                               -> Partitions
//	produce     Topic, Codec, Idempotent, Records, Pause -> Offsets, one for each record
//	read        Topic, Partition, Offset, Count     -> Records; no reset when Offset is out of range
//	offset      Topic, Partition, Time              -> Offset; Time -1 is the end, -2 the start
//	configs     Topic                               -> Config
//	alter       Topic, Config                       incremental where the client can
//	grow        Topic, Partitions                   to so many partitions
//	trim        Topic, Partition, Offset            -> Offset, the log's new start
//	delete      Topic
//	commit      Group, Topic, Partition, Offset, Metadata
//	committed   Group, Topic, Partition             -> Offset, Metadata
//	join        Group, Topic, Protocol              starts a member that reads and commits until leave
//	status                                          -> Assigned, Consumed of that member
//	leave                                           ends it as a client that closes does
//	groups      Group, Protocol                     -> State, Members
//	run         Class, Topic, Group, Args           (Java only) an application of a framework, from Topic to Args[0], until quit
//	quit
//	tool        Class, Args                         (Java only) -> Output of a command line tool, Exit
type Request struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic,omitempty"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions,omitempty"`
	Offset     int64             `json:"offset"`
	Count      int               `json:"count,omitempty"`
	Time       int64             `json:"time,omitempty"` // milliseconds since 1970
	Codec      string            `json:"codec,omitempty"`
	Pause      int               `json:"pause,omitempty"` // of produce: one record at a time, so many milliseconds after each
	Idempotent bool              `json:"idempotent,omitempty"`
	Records    []Record          `json:"records,omitempty"`
	Config     map[string]string `json:"config,omitempty"`
	Group      string            `json:"group,omitempty"`
	Protocol   string            `json:"protocol,omitempty"` // classic or consumer
	Metadata   string            `json:"metadata,omitempty"`
	Class      string            `json:"class,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Input      string            `json:"input,omitempty"`
}

// Record is a record as clients see it. A nil key or value is null, which is not the same as empty.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // milliseconds since 1970
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is one header of a record; keys may repeat.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Response is what came of a request. Gap says that the client cannot do it and why; Error is what the client reported.
type Response struct {
	Gap   string `json:"gap,omitempty"`
	Error *Error `json:"error,omitempty"`

	Client     string            `json:"client,omitempty"` // of hello, with the version
	Partitions int32             `json:"partitions,omitempty"`
	Offset     int64             `json:"offset,omitempty"`
	Offsets    []int64           `json:"offsets,omitempty"`
	Records    []Record          `json:"records,omitempty"`
	Config     map[string]string `json:"config,omitempty"`
	Metadata   string            `json:"metadata,omitempty"`
	Assigned   []int32           `json:"assigned,omitempty"`
	Consumed   map[int32][]int64 `json:"consumed,omitempty"` // offsets by partition, in the order of delivery
	State      string            `json:"state,omitempty"`
	Members    int               `json:"members,omitempty"`
	Output     string            `json:"output,omitempty"`
	Exit       int               `json:"exit,omitempty"`
}

// Error is an error as the client's user sees it. Code is Kafka's, -1 where the client hides it.
type Error struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

// Gap returns the answer of a client that cannot do what it was asked to.
func Gap(reason string) (Response, error) { return Response{Gap: reason}, nil }

// Client does what requests ask for.
type Client interface {
	Do(Request) (Response, error)
}

// Serve answers requests until standard input ends. code finds Kafka's error code in what the client library returned.
func Serve(c Client, code func(error) int) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	dec := json.NewDecoder(in)
	for {
		var q Request
		if dec.Decode(&q) != nil {
			return
		}
		r, err := c.Do(q)
		if err != nil {
			r = Response{Error: &Error{Code: code(err), Text: err.Error()}}
		}
		if out.Encode(r) != nil {
			return
		}
	}
}
