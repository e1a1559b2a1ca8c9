package controller

import "github.com/twmb/franz-go/pkg/kmsg"

// producerIDBlock is how many producer ids a broker gets at a time (KIP-730).
const producerIDBlock = 1000

// allocateProducerIDs gives a broker a block of producer ids that nobody else will ever get.
func (c *Controller) allocateProducerIDs(req *kmsg.AllocateProducerIDsRequest) *kmsg.AllocateProducerIDsResponse {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if resp.ErrorCode = c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); resp.ErrorCode != codeNone {
		return resp
	}
	first := c.spec.producerID
	c.emit(&ProducerIDsRecord{BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch, Next: first + producerIDBlock})
	resp.ProducerIDStart, resp.ProducerIDLen = first, producerIDBlock
	return resp
}

// checkBrokerEpoch refuses a request of a broker's earlier life (rule 9).
func (c *Controller) checkBrokerEpoch(id int32, epoch int64) int16 {
	switch b := c.spec.Broker(id); {
	case b == nil:
		return codeBrokerIDNotRegistered
	case b.Epoch != epoch:
		return codeStaleBrokerEpoch
	}
	return codeNone
}
