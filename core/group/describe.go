package group

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeGroups serves DescribeGroups, which knows groups of the classic protocol only.
func (c *Coordinator) describeGroups(q call, m *kmsg.DescribeGroupsRequest) {
	resp := m.ResponseKind().(*kmsg.DescribeGroupsResponse)
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(m.Groups))
	for i, id := range m.Groups {
		resp.Groups[i] = kmsg.NewDescribeGroupsResponseGroup()
		resp.Groups[i].Group = id
	}
	c.each(m.Groups, false, func(i int, g *group, done func()) {
		describeClassic(&resp.Groups[i], g, m.Version)
		done()
	}, func(i int, code int16) { resp.Groups[i].ErrorCode = code }, func() { c.answer(q.token, resp) })
}

func describeClassic(x *kmsg.DescribeGroupsResponseGroup, g *group, version int16) {
	if g.consumer != nil || !g.exists() {
		x.State = "Dead" // before version 6 that is the only sign (KIP-1043)
		if version >= 6 {
			why := "Group " + g.id + " not found."
			if g.consumer != nil {
				why = "Group " + g.id + " is not a classic group."
			}
			x.ErrorCode, x.ErrorMessage = errGroupIDNotFound, &why
		}
		return
	}
	k := &g.classic
	x.State, x.ProtocolType = k.state.String(), k.protocolType
	if k.state == stable {
		x.Protocol = k.protocol
	}
	for _, id := range k.ids() {
		mem := k.members[id]
		y := kmsg.NewDescribeGroupsResponseGroupMember()
		y.MemberID, y.InstanceID, y.ClientID, y.ClientHost = id, mem.instance, mem.clientID, mem.host
		y.ProtocolMetadata, y.MemberAssignment = []byte{}, []byte{}
		if k.state == stable { // else they are those of an earlier generation
			y.ProtocolMetadata, y.MemberAssignment = mem.metadataOf(k.protocol), mem.assignment
		}
		x.Members = append(x.Members, y)
	}
}

// listGroups serves ListGroups, with filters by state (KIP-518) and type (KIP-848).
func (c *Coordinator) listGroups(q call, m *kmsg.ListGroupsRequest) {
	resp := m.ResponseKind().(*kmsg.ListGroupsResponse)
	if c.mute {
		resp.ErrorCode = errCoordinatorNotAvailable
		c.answer(q.token, resp)
		return
	}
	for _, i := range slices.Sorted(maps.Keys(c.parts)) {
		p := c.parts[i]
		if p.loading { // a part of the truth would pass for the whole
			resp.ErrorCode, resp.Groups = errCoordinatorLoading, nil
			break
		}
		for _, id := range slices.Sorted(maps.Keys(p.groups)) {
			g := p.groups[id]
			v := g.view()
			if g.busy != nil { // what is not committed is not shown
				v = g.shown
			}
			if !v.exists || !among(m.StatesFilter, v.state) || !among(m.TypesFilter, v.kind) {
				continue
			}
			x := kmsg.NewListGroupsResponseGroup()
			x.Group, x.ProtocolType, x.GroupState, x.GroupType = id, v.protocolType, v.state, v.kind
			resp.Groups = append(resp.Groups, x)
		}
	}
	c.answer(q.token, resp)
}

func among(filter []string, s string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, s) })
}

// deleteGroups serves DeleteGroups: groups without members go, with their offsets.
func (c *Coordinator) deleteGroups(q call, m *kmsg.DeleteGroupsRequest) {
	resp := m.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(m.Groups))
	for i, id := range m.Groups {
		resp.Groups[i] = kmsg.NewDeleteGroupsResponseGroup()
		resp.Groups[i].Group = id
	}
	c.each(m.Groups, true, func(i int, g *group, done func()) {
		x := &resp.Groups[i]
		switch {
		case !g.exists():
			x.ErrorCode = errGroupIDNotFound
		case !g.vacant():
			x.ErrorCode = errNonEmptyGroup
		default:
			tombs := append(g.offsetTombstones(func(string, *offset) bool { return true }), g.tombstones()...)
			c.erase(g, tombs, done, func(code int16) { x.ErrorCode = writeError(code); done() })
			return
		}
		done()
	}, func(i int, code int16) { resp.Groups[i].ErrorCode = code }, func() { c.answer(q.token, resp) })
}
