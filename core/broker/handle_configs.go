package broker

import (
	"lockstep/core/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func handleDescribeConfigs(b *Broker, q *request) {
	b.respond(q, controller.DescribeConfigs(b.image, b.cfg.NodeID, b.cfg.Static, q.Msg.(*kmsg.DescribeConfigsRequest)))
}

func handleListConfigResources(b *Broker, q *request) {
	b.respond(q, controller.ListConfigResources(b.image, q.Msg.(*kmsg.ListConfigResourcesRequest)))
}
