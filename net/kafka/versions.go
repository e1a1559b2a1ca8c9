package kafka

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API is one row of the version table: an API key and the versions of it that
// Lockstep speaks. A key that has no row is not served.
type API struct {
	Key kmsg.Key
	// Min is the lowest version that ApiVersions advertises. It is below Served
	// only where clients draw wrong conclusions from the true minimum.
	Min int16
	// Served is the lowest version that is really processed; a request from Min
	// up to it is answered with UNSUPPORTED_VERSION.
	Served int16
	Max    int16
	Peer   bool // only on the listener for peers
}

// apis is the table. Advertise a version only when it works: clients change
// what they send by what they see.
var apis = []API{
	// A minimum above 0 makes older librdkafka drop compression without a word.
	{Key: kmsg.Produce, Min: 0, Served: 3, Max: 13},
	{Key: kmsg.Fetch, Min: 4, Served: 4, Max: 18},
	{Key: kmsg.ListOffsets, Min: 1, Served: 1, Max: 11},
	{Key: kmsg.Metadata, Min: 0, Served: 0, Max: 13},
	{Key: kmsg.OffsetCommit, Min: 2, Served: 2, Max: 10},
	{Key: kmsg.OffsetFetch, Min: 1, Served: 1, Max: 10},
	{Key: kmsg.FindCoordinator, Min: 0, Served: 0, Max: 6},
	{Key: kmsg.JoinGroup, Min: 0, Served: 0, Max: 9},
	{Key: kmsg.Heartbeat, Min: 0, Served: 0, Max: 4},
	{Key: kmsg.LeaveGroup, Min: 0, Served: 0, Max: 5},
	{Key: kmsg.SyncGroup, Min: 0, Served: 0, Max: 5},
	{Key: kmsg.DescribeGroups, Min: 0, Served: 0, Max: 6},
	{Key: kmsg.ListGroups, Min: 0, Served: 0, Max: 5},
	{Key: kmsg.ApiVersions, Min: 0, Served: 0, Max: 4},
	{Key: kmsg.CreateTopics, Min: 2, Served: 2, Max: 7},
	{Key: kmsg.DeleteTopics, Min: 1, Served: 1, Max: 6},
	{Key: kmsg.DeleteRecords, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.InitProducerID, Min: 0, Served: 0, Max: 5},
	{Key: kmsg.OffsetForLeaderEpoch, Min: 2, Served: 2, Max: 4},
	{Key: kmsg.DescribeConfigs, Min: 1, Served: 1, Max: 4},
	{Key: kmsg.AlterConfigs, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.DescribeLogDirs, Min: 1, Served: 1, Max: 4},
	{Key: kmsg.CreatePartitions, Min: 0, Served: 0, Max: 3},
	{Key: kmsg.DeleteGroups, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.ElectLeaders, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.IncrementalAlterConfigs, Min: 0, Served: 0, Max: 1},
	{Key: kmsg.OffsetDelete, Min: 0, Served: 0, Max: 0},
	// Between brokers, which speak one version with each other.
	{Key: kmsg.Vote, Min: 2, Served: 2, Max: 2, Peer: true},
	{Key: kmsg.BeginQuorumEpoch, Min: 1, Served: 1, Max: 1, Peer: true},
	{Key: kmsg.EndQuorumEpoch, Min: 1, Served: 1, Max: 1, Peer: true},
	{Key: kmsg.DescribeQuorum, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.AlterPartition, Min: 3, Served: 3, Max: 3, Peer: true},
	{Key: kmsg.FetchSnapshot, Min: 1, Served: 1, Max: 1, Peer: true},
	{Key: kmsg.DescribeCluster, Min: 0, Served: 0, Max: 2},
	{Key: kmsg.DescribeProducers, Min: 0, Served: 0, Max: 0},
	{Key: kmsg.BrokerRegistration, Min: 4, Served: 4, Max: 4, Peer: true},
	{Key: kmsg.BrokerHeartbeat, Min: 1, Served: 1, Max: 1, Peer: true},
	{Key: kmsg.AllocateProducerIDs, Min: 0, Served: 0, Max: 0, Peer: true},
	{Key: kmsg.ConsumerGroupHeartbeat, Min: 0, Served: 0, Max: 1},
	{Key: kmsg.ConsumerGroupDescribe, Min: 0, Served: 0, Max: 1},
	{Key: kmsg.ListConfigResources, Min: 0, Served: 0, Max: 1},
	{Key: kmsg.DescribeTopicPartitions, Min: 0, Served: 0, Max: 0},
}

// byKey finds a row by its key.
var byKey = func() map[int16]API {
	m := make(map[int16]API, len(apis))
	for _, a := range apis {
		m[a.Key.Int16()] = a
	}
	return m
}()

// APIs returns the version table, ascending by key.
func APIs() []API { return append([]API(nil), apis...) }

// Lookup returns the row of a key; peer says that the request came in on the
// peers' listener.
func Lookup(key int16, peer bool) (API, bool) {
	a, ok := byKey[key]
	return a, ok && (peer || !a.Peer)
}

// Advertised returns what the answer to ApiVersions lists on a listener.
func Advertised(peer bool) []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for _, a := range apis {
		if a.Peer && !peer {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key.Int16(), a.Min, a.Max
		keys = append(keys, k)
	}
	return keys
}

// VersionTable returns the table as Markdown, for docs/protocol.md.
func VersionTable() string {
	var b strings.Builder
	b.WriteString("| API | key | versions | listener |\n|---|---|---|---|\n")
	for _, a := range apis {
		versions := fmt.Sprintf("%d-%d", a.Served, a.Max)
		if a.Served == a.Max {
			versions = fmt.Sprint(a.Max)
		}
		if a.Min != a.Served {
			versions += fmt.Sprintf(" (advertised from %d)", a.Min)
		}
		listener := "clients, peers"
		if a.Peer {
			listener = "peers"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", a.Key.Name(), a.Key.Int16(), versions, listener)
	}
	return b.String()
}
