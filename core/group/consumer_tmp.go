package group

import "github.com/twmb/franz-go/pkg/kmsg"

func (c *Coordinator) joinConsumer(g *group, q call, m *kmsg.JoinGroupRequest)      {}
func (c *Coordinator) syncConsumer(g *group, q call, m *kmsg.SyncGroupRequest)      {}
func (c *Coordinator) heartbeatConsumer(g *group, q call, m *kmsg.HeartbeatRequest) {}
func (c *Coordinator) leaveConsumer(g *group, q call, m *kmsg.LeaveGroupRequest)    {}
func (c *Coordinator) refreshSubscriptions(p *partition)                            {}
func (c *Coordinator) tickConsumer(g *group)                                        {}
func (c *Coordinator) revokeTimer(g *group, id string)                              {}
func (c *Coordinator) consumerHeartbeatRequest(q call, m *kmsg.ConsumerGroupHeartbeatRequest) {
	resp := m.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	resp.ErrorCode = errUnsupportedVersion
	c.answer(q.token, resp)
}
func (c *Coordinator) describeConsumerGroups(q call, m *kmsg.ConsumerGroupDescribeRequest) {
	resp := m.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, g := range m.Groups {
		x := kmsg.NewConsumerGroupDescribeResponseGroup()
		x.Group, x.ErrorCode = g, errGroupIDNotFound
		resp.Groups = append(resp.Groups, x)
	}
	c.answer(q.token, resp)
}
