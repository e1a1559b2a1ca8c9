package main

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/bench/process"
)

// figures are what a broker has used and answered so far.
type figures struct {
	at       time.Time
	cpu      time.Duration
	requests map[string]int // by API
	heap     int64          // bytes allocated and not yet collected
	resident int64
}

// look reads the figures of a broker.
func look(p *process.Process) (f figures, err error) {
	f = figures{at: time.Now(), requests: map[string]int{}}
	resp, err := http.Get("http://" + p.HTTP + "/metrics")
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue // a comment
		}
		if api, ok := strings.CutPrefix(name, `lockstep_request_seconds_count{api="`); ok {
			f.requests[strings.TrimSuffix(api, `"}`)] = int(n)
		}
		if name == "go_memstats_heap_alloc_bytes" {
			f.heap = int64(n)
		}
	}
	if f.cpu, err = p.CPU(); err != nil {
		return f, err
	}
	f.resident, err = p.ResidentBytes()
	return f, err
}

// groupAPIs are the requests that groups cause; those for data and metadata are others' business.
var groupAPIs = []string{"FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetFetch", "OffsetCommit"}

// since returns how many requests of groups there were since earlier, in all and by API.
func (f figures) since(earlier figures) (total int, each string) {
	var parts []string
	for _, api := range groupAPIs {
		if n := f.requests[api] - earlier.requests[api]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%s %d", api, n))
		}
	}
	slices.Sort(parts)
	return total, strings.Join(parts, ", ")
}
