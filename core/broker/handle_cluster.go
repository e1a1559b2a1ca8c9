package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleAPIVersions tells a client what is served, from the host's one table, and the finalized features (KIP-584).
func handleAPIVersions(b *Broker, q *request) {
	m := q.Msg.(*kmsg.ApiVersionsRequest)
	resp := m.ResponseKind().(*kmsg.ApiVersionsResponse)
	if q.version >= 3 && !validSoftware(m.ClientSoftwareName) {
		resp.ErrorCode = errInvalidRequest
		b.respond(q, resp)
		return
	}
	resp.ApiKeys = b.cfg.Versions
	resp.FinalizedFeaturesEpoch = b.image.Next() - 1
	b.respond(q, resp)
}

// validSoftware says whether a client's name has the form that KIP-511 demands.
func validSoftware(s string) bool {
	for i, c := range s {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}

// handleDescribeCluster answers who is in the cluster (KIP-700).
func handleDescribeCluster(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeClusterRequest)
	resp := m.ResponseKind().(*kmsg.DescribeClusterResponse)
	if q.version >= 1 && m.EndpointType != 1 {
		resp.ErrorCode = errUnsupportedEndpointType
		msg := "only brokers are described: every controller is a broker"
		if m.EndpointType != 2 {
			resp.ErrorCode, msg = errInvalidRequest, "unknown endpoint type"
		}
		resp.ErrorMessage = &msg
		b.respond(q, resp)
		return
	}
	if !b.knowsCluster() {
		b.closeConn(q, unknownCluster)
		return
	}
	resp.ClusterID, resp.ControllerID, resp.EndpointType = b.image.ClusterID(), b.controllerID(), 1
	resp.ClusterAuthorizedOperations = notAsked
	if m.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for br := range b.image.Brokers() {
		n, ok := metadataBroker(br)
		if !ok || br.Fenced && !m.IncludeFencedBrokers {
			continue
		}
		e := kmsg.NewDescribeClusterResponseBroker()
		e.NodeID, e.Host, e.Port, e.Rack, e.IsFenced = n.NodeID, n.Host, n.Port, n.Rack, br.Fenced
		resp.Brokers = append(resp.Brokers, e)
	}
	b.respond(q, resp)
}
