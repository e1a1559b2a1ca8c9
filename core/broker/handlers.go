package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// handler answers one request, now or later.
type handler func(*Broker, *request)

// handlers has a line for each API key that the broker serves. What of them a listener advertises, and in which
// versions, stands in net/kafka.
var handlers = map[kmsg.Key]handler{
	kmsg.Produce:                 handleProduce,
	kmsg.Fetch:                   handleFetch,
	kmsg.ListOffsets:             handleListOffsets,
	kmsg.Metadata:                handleMetadata,
	kmsg.ApiVersions:             handleAPIVersions,
	kmsg.OffsetForLeaderEpoch:    handleOffsetForLeaderEpoch,
	kmsg.InitProducerID:          handleInitProducerID,
	kmsg.CreateTopics:            handleCreateTopics,
	kmsg.DeleteTopics:            handleByController,
	kmsg.CreatePartitions:        handleByController,
	kmsg.AlterConfigs:            handleByController,
	kmsg.IncrementalAlterConfigs: handleByController,
	kmsg.ElectLeaders:            handleByController,
	kmsg.DeleteRecords:           handleDeleteRecords,
	kmsg.DescribeConfigs:         handleDescribeConfigs,
	kmsg.ListConfigResources:     handleListConfigResources,
	kmsg.DescribeCluster:         handleDescribeCluster,
	kmsg.DescribeTopicPartitions: handleDescribeTopicPartitions,
	kmsg.DescribeLogDirs:         handleDescribeLogDirs,
	kmsg.DescribeProducers:       handleDescribeProducers,
	kmsg.DescribeQuorum:          handleDescribeQuorum,
	kmsg.BrokerRegistration:      handleByController,
	kmsg.BrokerHeartbeat:         handleByController,
	kmsg.AlterPartition:          handleByController,
	kmsg.AllocateProducerIDs:     handleByController,
	kmsg.FindCoordinator:         handleFindCoordinator,
	kmsg.OffsetCommit:            handleGroup,
	kmsg.OffsetFetch:             handleGroup,
	kmsg.OffsetDelete:            handleGroup,
	kmsg.JoinGroup:               handleGroup,
	kmsg.SyncGroup:               handleGroup,
	kmsg.Heartbeat:               handleGroup,
	kmsg.LeaveGroup:              handleGroup,
	kmsg.DescribeGroups:          handleGroup,
	kmsg.ListGroups:              handleGroup,
	kmsg.DeleteGroups:            handleGroup,
	kmsg.ConsumerGroupHeartbeat:  handleGroup,
	kmsg.ConsumerGroupDescribe:   handleGroup,
	kmsg.Vote:                    handleQuorum,
	kmsg.BeginQuorumEpoch:        handleQuorum,
	kmsg.EndQuorumEpoch:          handleQuorum,
	kmsg.FetchSnapshot:           handleQuorum,
}

func handlerFor(key int16) handler { return handlers[kmsg.Key(key)] }
