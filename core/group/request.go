package group

import (
	"slices"
	"strings"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is a request that is being served.
type call struct {
	token  Token
	client Client
}

// Handles says whether requests of this key are for the coordinator.
func Handles(key kmsg.Key) bool {
	switch key {
	case kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.OffsetDelete,
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup,
		kmsg.DescribeGroups, kmsg.ListGroups, kmsg.DeleteGroups,
		kmsg.ConsumerGroupHeartbeat, kmsg.ConsumerGroupDescribe:
		return true
	}
	return false
}

// Handle takes a request. Its answer is in out at once, or after a later call.
func (c *Coordinator) Handle(now core.Time, wall core.WallMillis, token Token, client Client, req kmsg.Request, out *Out) {
	c.enter(now, out)
	c.wall = wall
	q := call{token, client}
	switch m := req.(type) {
	case *kmsg.JoinGroupRequest:
		c.one(q, m, m.Group, func(code int16) kmsg.Response { return joinError(m, m.MemberID, code) },
			func(g *group) { c.join(g, q, m) })
	case *kmsg.SyncGroupRequest:
		c.one(q, m, m.Group, func(code int16) kmsg.Response { return syncError(m, code) },
			func(g *group) { c.sync(g, q, m) })
	case *kmsg.HeartbeatRequest:
		c.one(q, m, m.Group, func(code int16) kmsg.Response { return heartbeatAnswer(m, code) },
			func(g *group) { c.heartbeat(g, q, m) })
	case *kmsg.LeaveGroupRequest:
		c.one(q, m, m.Group, func(code int16) kmsg.Response { return leaveError(m, code) },
			func(g *group) { c.leave(g, q, m) })
	case *kmsg.OffsetCommitRequest:
		c.one(q, m, m.Group, func(code int16) kmsg.Response { return commitError(m, code) },
			func(g *group) { c.commitOffsets(g, q, m) })
	case *kmsg.OffsetDeleteRequest:
		c.deleteOffsets(q, m)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		c.consumerHeartbeatRequest(q, m)
	case *kmsg.OffsetFetchRequest:
		c.fetchOffsets(q, m)
	case *kmsg.DescribeGroupsRequest:
		c.describeGroups(q, m)
	case *kmsg.ConsumerGroupDescribeRequest:
		c.describeConsumerGroups(q, m)
	case *kmsg.ListGroupsRequest:
		c.listGroups(q, m)
	case *kmsg.DeleteGroupsRequest:
		c.deleteGroups(q, m)
	}
}

// maxName bounds, in bytes, what clients name themselves and their groups: in records a string has up to 32767, and member ids
// are made of such names.
const maxName = 32_000

func tooLong(names ...*string) bool {
	return slices.ContainsFunc(names, func(s *string) bool { return s != nil && len(*s) > maxName })
}

// one serves a request to one group: run when the group is ready, or the answer that says why not.
func (c *Coordinator) one(q call, m kmsg.Request, id string, failed func(code int16) kmsg.Response, run func(g *group)) {
	p, code := c.find(id)
	if len(id) > maxName || id == "" && m.Key() != kmsg.OffsetCommit.Int16() { // old simple consumers commit without a name
		code = errInvalidGroupID
	}
	if code != errNone {
		c.answer(q.token, failed(code))
		return
	}
	c.do(p, id, task{token: q.token, run: run, fail: func(code int16) { c.answer(q.token, failed(code)) }})
}

// gather answers a request to many groups when each has given its part.
type gather struct {
	left int
	done func()
}

func (a *gather) one() {
	if a.left--; a.left == 0 {
		a.done()
	}
}

// each runs a task for each of several groups. Every task calls one of the gather when it is done; failed is for those that
// could not be run.
func (c *Coordinator) each(ids []string, alone bool, run func(i int, g *group, done func()), failed func(i int, code int16),
	done func()) {
	a := &gather{left: len(ids) + 1, done: done}
	for i, id := range ids {
		p, code := c.find(id)
		if code != errNone {
			failed(i, code)
			a.one()
			continue
		}
		c.do(p, id, task{
			alone: alone,
			run:   func(g *group) { run(i, g, a.one) },
			fail:  func(code int16) { failed(i, code); a.one() },
		})
	}
	a.one()
}

// memberID returns a new member id that begins with a name of the client.
func (c *Coordinator) memberID(name string) string {
	if len(name) > 255 {
		name = strings.ToValidUTF8(name[:255], "")
	}
	return name + "-" + c.newID()
}

// newID returns a random id in the form of a UUID of version 4.
func (c *Coordinator) newID() string {
	const digits = "0123456789abcdef"
	hi, lo := c.rand.Uint64(), c.rand.Uint64()
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 2<<62
	b := make([]byte, 0, 36)
	for i := range 32 {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			b = append(b, '-')
		}
		v := hi
		if i >= 16 {
			v = lo
		}
		b = append(b, digits[v>>(60-4*(i%16))&15])
	}
	return string(b)
}
