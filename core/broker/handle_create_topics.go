package broker

import (
	"lockstep/core/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleCreateTopics has the controller create topics, and answers when they also have leaders, or after creationTimeout:
// a client's first request to a new topic should find it.
func handleCreateTopics(b *Broker, q *request) {
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
