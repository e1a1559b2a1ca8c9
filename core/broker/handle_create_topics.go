package broker

import (
	"lockstep/core/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleCreateTopics has the controller create topics, and answers when they also have leaders, or after creationTimeout:
// a client's first request to a new topic should find it. The broker that a client asked waits for that, not the controller that it
// passes the request to: answers on a connection leave in order, and those to its heartbeats would wait with it, and its lease run out.
func handleCreateTopics(b *Broker, q *request) {
	if q.Peer {
		handleByController(b, q)
		return
	}
	b.askController(clientPatience, q.Msg, func(resp kmsg.Response, err error) {
		if err != nil {
			b.respond(q, controller.ErrorResponse(q.Msg, errNotController))
			return
		}
		if q.done {
			return
		}
		var names []string
		if !q.Msg.(*kmsg.CreateTopicsRequest).ValidateOnly {
			for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
				if t.ErrorCode == errNone {
					names = append(names, t.Topic)
				}
			}
		}
		b.awaitLeaders(q, names, func() { b.respond(q, resp) })
		b.wakeCreations()
	})
}
