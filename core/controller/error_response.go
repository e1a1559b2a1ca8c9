package controller

import "github.com/twmb/franz-go/pkg/kmsg"

// ErrorResponse returns the answer to req that says errorCode for all it asks, or nil if it is no request of the controller's.
func ErrorResponse(req kmsg.Request, errorCode int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return createTopicsError(req, errorCode)
	case *kmsg.DeleteTopicsRequest:
		return deleteTopicsError(req, errorCode)
	case *kmsg.CreatePartitionsRequest:
		return createPartitionsError(req, errorCode)
	case *kmsg.AlterConfigsRequest:
		return alterConfigsError(req, errorCode)
	case *kmsg.IncrementalAlterConfigsRequest:
		return incrementalAlterConfigsError(req, errorCode)
	case *kmsg.ElectLeadersRequest:
		return electLeadersError(req, errorCode)
	case *kmsg.AlterPartitionRequest:
		resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
		resp.ErrorCode = errorCode
		return resp
	case *kmsg.BrokerRegistrationRequest:
		resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
		resp.ErrorCode, resp.BrokerEpoch = errorCode, -1
		return resp
	case *kmsg.UnregisterBrokerRequest:
		resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		resp.ErrorCode = errorCode
		return resp
	case *kmsg.BrokerHeartbeatRequest:
		resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
		resp.ErrorCode, resp.IsFenced = errorCode, true // no lease
		return resp
	case *kmsg.AllocateProducerIDsRequest:
		resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
		resp.ErrorCode = errorCode
		return resp
	}
	return nil
}

func createTopicsError(req *kmsg.CreateTopicsRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for _, t := range req.Topics {
		x := kmsg.NewCreateTopicsResponseTopic()
		x.Topic, x.ErrorCode, x.NumPartitions, x.ReplicationFactor = t.Topic, code, -1, -1
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}

func deleteTopicsError(req *kmsg.DeleteTopicsRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	for _, name := range req.TopicNames {
		x := kmsg.NewDeleteTopicsResponseTopic()
		x.Topic, x.ErrorCode = &name, code
		resp.Topics = append(resp.Topics, x)
	}
	for _, t := range req.Topics {
		x := kmsg.NewDeleteTopicsResponseTopic()
		x.Topic, x.TopicID, x.ErrorCode = t.Topic, t.TopicID, code
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}

func createPartitionsError(req *kmsg.CreatePartitionsRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for _, t := range req.Topics {
		x := kmsg.NewCreatePartitionsResponseTopic()
		x.Topic, x.ErrorCode = t.Topic, code
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}

func alterConfigsError(req *kmsg.AlterConfigsRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, r := range req.Resources {
		x := kmsg.NewAlterConfigsResponseResource()
		x.ResourceType, x.ResourceName, x.ErrorCode = r.ResourceType, r.ResourceName, code
		resp.Resources = append(resp.Resources, x)
	}
	return resp
}

func incrementalAlterConfigsError(req *kmsg.IncrementalAlterConfigsRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, r := range req.Resources {
		x := kmsg.NewIncrementalAlterConfigsResponseResource()
		x.ResourceType, x.ResourceName, x.ErrorCode = r.ResourceType, r.ResourceName, code
		resp.Resources = append(resp.Resources, x)
	}
	return resp
}

// electLeadersError also sets the code of each partition, for version 0 has no other place for it.
func electLeadersError(req *kmsg.ElectLeadersRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	resp.ErrorCode = code
	for _, t := range req.Topics {
		x := kmsg.NewElectLeadersResponseTopic()
		x.Topic = t.Topic
		for _, p := range t.Partitions {
			y := kmsg.NewElectLeadersResponseTopicPartition()
			y.Partition, y.ErrorCode = p, code
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}
