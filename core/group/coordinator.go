// Package group is the consumer-group coordinator as a pure machine: the classic protocol and that of KIP-848, committed
// offsets, and the state of groups in the records of the offsets topic.
package group

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Coordinator holds the groups of those partitions of the offsets topic that this broker leads.
type Coordinator struct{}

// New returns a coordinator that leads no partition yet.
func New(cfg Config, topics Topics, rand core.Rand) *Coordinator { return &Coordinator{} }

// Config is what the broker's settings say to the coordinator. Durations in Kafka's names.
type Config struct {
	Partitions int32 // of the offsets topic; fixed once it exists
}

// Configure takes new settings.
func (c *Coordinator) Configure(cfg Config) {}

// Lead begins to load a partition of the offsets topic: this broker leads it now, in the given epoch. Requests for its
// groups get COORDINATOR_LOAD_IN_PROGRESS until Loaded (rule 20).
func (c *Coordinator) Lead(partition, leaderEpoch int32) {}

// Load applies records of a partition that is being loaded, in the order of its log.
func (c *Coordinator) Load(partition int32, key, value []byte, timestamp int64) {}

// Loaded says that all of the partition up to the start of this epoch is loaded and committed: its groups serve from now on.
func (c *Coordinator) Loaded(now core.Time, wall core.WallMillis, partition int32, out *Out) {}

// Resign ends the leadership of a partition: everything that waits for its groups gets NOT_COORDINATOR.
func (c *Coordinator) Resign(now core.Time, partition int32, out *Out) {}

// Handles says whether requests of this key are for the coordinator.
func Handles(key kmsg.Key) bool { return false }

// Handle takes a request. Its answer is in out at once, or after a later call.
func (c *Coordinator) Handle(now core.Time, wall core.WallMillis, token Token, client Client, req kmsg.Request, out *Out) {
}

// Cancel forgets a request that waits: its connection is gone.
func (c *Coordinator) Cancel(token Token) {}

// Committed says that a write is committed: on every in-sync replica, durably.
func (c *Coordinator) Committed(now core.Time, seq uint64, out *Out) {}

// WriteFailed says that a write was refused with a Kafka error code, or that it is not known what became of it: then, and only
// then, unknown is true, and the caller makes the partition lead anew (Resign, Lead, Load) before anything else.
func (c *Coordinator) WriteFailed(now core.Time, seq uint64, code int16, unknown bool, out *Out) {}

// TopicsChanged says that topics were created, grew or were deleted.
func (c *Coordinator) TopicsChanged(now core.Time, wall core.WallMillis, out *Out) {}

// Tick is time passing.
func (c *Coordinator) Tick(now core.Time, wall core.WallMillis, out *Out) {}

// Deadline says when Tick is wanted next.
func (c *Coordinator) Deadline() core.Time { return core.Never }
