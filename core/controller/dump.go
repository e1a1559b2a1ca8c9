package controller

import (
	"fmt"
	"strings"
)

// Describe returns a record in readable form, for people.
func Describe(record []byte) string {
	r, err := Decode(record)
	if err != nil {
		return err.Error()
	}
	switch r := r.(type) {
	case *ClusterRecord:
		return "Cluster id=" + r.ID
	case *FeatureRecord:
		return fmt.Sprintf("Feature %s level=%d", r.Name, r.Level)
	case *TopicRecord:
		return fmt.Sprintf("Topic %s id=%s", r.Name, r.ID)
	case *RemoveTopicRecord:
		return fmt.Sprintf("RemoveTopic id=%s", r.ID)
	case *PartitionRecord:
		return fmt.Sprintf("Partition %s %s", r.Partition.Partition, describePartition(&r.Partition))
	case *PartitionChangeRecord:
		return describeChange(r)
	case *ConfigRecord:
		of := fmt.Sprintf("%s %q", strings.ToLower(r.Resource.Type.String()), r.Resource.Name)
		if r.Value == nil {
			return fmt.Sprintf("Config %s: %s removed", of, r.Change.Name)
		}
		return fmt.Sprintf("Config %s: %s=%s", of, r.Change.Name, *r.Value)
	case *RegisterBrokerRecord:
		return fmt.Sprintf("RegisterBroker %d epoch=%d incarnation=%x endpoints=%v rack=%q logDirs=%x fenced=%v stopping=%v",
			r.ID, r.Epoch, r.Incarnation, r.Endpoints, r.Rack, r.LogDirs, r.Fenced, r.Stopping)
	case *BrokerChangeRecord:
		return fmt.Sprintf("BrokerChange %d epoch=%d fenced=%v stopping=%v", r.ID, r.Epoch, r.Fenced, r.Stopping)
	case *UnregisterBrokerRecord:
		return fmt.Sprintf("UnregisterBroker %d epoch=%d", r.ID, r.Epoch)
	case *ProducerIDsRecord:
		return fmt.Sprintf("ProducerIDs broker=%d epoch=%d next=%d", r.BrokerID, r.BrokerEpoch, r.Next)
	case *BrokerEpochsRecord:
		return fmt.Sprintf("BrokerEpochs last=%d", r.Last)
	}
	return fmt.Sprintf("%+v", r)
}

func describePartition(p *Partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader=%d leaderEpoch=%d epoch=%d replicas=%v isr=%v", p.Leader, p.LeaderEpoch, p.Epoch, p.Replicas, p.ISR)
	for _, list := range []struct {
		name string
		ids  []int32
	}{{"elr", p.ELR}, {"lastElr", p.LastELR}, {"adding", p.Adding}, {"removing", p.Removing}} {
		if len(list.ids) > 0 {
			fmt.Fprintf(&b, " %s=%v", list.name, list.ids)
		}
	}
	if p.Recovering {
		b.WriteString(" recovering")
	}
	return b.String()
}

func describeChange(r *PartitionChangeRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "PartitionChange %s leaderEpoch=%d epoch=%d", r.Partition, r.LeaderEpoch, r.Epoch)
	if r.Leader != nil {
		fmt.Fprintf(&b, " leader=%d", *r.Leader)
	}
	names := [...]string{"replicas", "isr", "elr", "lastElr", "adding", "removing"}
	for i, list := range r.lists() {
		if *list != nil {
			fmt.Fprintf(&b, " %s=%v", names[i], **list)
		}
	}
	if r.Recovering != nil {
		fmt.Fprintf(&b, " recovering=%v", *r.Recovering)
	}
	return b.String()
}
