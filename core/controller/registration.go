package controller

import (
	"slices"

	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// registerBroker gives a life of a broker's process its broker epoch (rule 9).
// Registering again with the same incarnation and the same particulars, as
// after an answer that got lost, gives the same epoch.
func (c *Controller) registerBroker(req *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	old := c.spec.Broker(req.BrokerID)
	next := registration(req, c.spec.lastEpoch+1)
	if old != nil && old.Incarnation == next.Incarnation && sameParticulars(old, &next) {
		resp.BrokerEpoch = old.Epoch
		return resp
	}
	if code, why := c.checkRegistration(req, old); code != codeNone {
		c.refused(req.BrokerID, code, why)
		resp.ErrorCode = code
		return resp
	}
	delete(c.refusals, next.ID)
	c.emit(&RegisterBrokerRecord{next})
	clean := old != nil && req.PreviousBrokerEpoch == old.Epoch
	disk := old != nil && len(old.LogDirs) > 0 && slices.Equal(old.LogDirs, next.LogDirs)
	c.takeFromPartitions(next.ID, trust{clean: clean, disk: disk})
	c.setLife(c.newLife(&next, c.call.now))
	if old != nil && !disk {
		c.log(levelWarn, "a broker is back with another data directory: what it held it copies from others, but if it is a voter "+
			"it has forgotten its vote and what it acknowledged (docs/operations.md)", "broker", next.ID)
	}
	c.log(levelInfo, "broker registered", "broker", next.ID, "epoch", next.Epoch, "clean stop", clean, "same disk", disk)
	resp.BrokerEpoch = next.Epoch
	return resp
}

// maxRefusals bounds what is remembered of brokers that were refused: ids come from whoever asks.
const maxRefusals = 1000

// refused tells the operator once why a broker is not registered: it asks again many times a second.
func (c *Controller) refused(id int32, code int16, why string) {
	if c.refusals[id] == code {
		return
	}
	if len(c.refusals) >= maxRefusals {
		clear(c.refusals)
	}
	c.refusals[id] = code
	c.log(levelWarn, "registration of a broker refused", "broker", id, "code", code, "why", why)
}

func registration(req *kmsg.BrokerRegistrationRequest, epoch int64) Broker {
	b := Broker{ID: req.BrokerID, Epoch: epoch, Incarnation: req.IncarnationID, Fenced: true, Offset: -1}
	b.LogDirs = append(b.LogDirs, req.LogDirs...)
	for _, l := range req.Listeners {
		b.Endpoints = append(b.Endpoints, Endpoint{l.Name, l.Host, l.Port, l.SecurityProtocol})
	}
	for _, f := range req.Features {
		b.Features = append(b.Features, Feature{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	if req.Rack != nil {
		b.Rack = *req.Rack
	}
	return b
}

func sameParticulars(a, b *Broker) bool {
	return a.Rack == b.Rack && slices.Equal(a.LogDirs, b.LogDirs) && slices.Equal(a.Endpoints, b.Endpoints) &&
		slices.Equal(a.Features, b.Features)
}

// checkRegistration returns the error code that refuses a registration, and why.
func (c *Controller) checkRegistration(req *kmsg.BrokerRegistrationRequest, old *Broker) (int16, string) {
	switch {
	case req.ClusterID != "" && req.ClusterID != c.spec.clusterID:
		return codeInconsistentClusterID, "it belongs to cluster " + req.ClusterID
	case req.BrokerID < 0:
		return codeInvalidRequest, "negative id"
	case req.IncarnationID == [16]byte{}:
		return codeInvalidRequest, "no incarnation id"
	case len(req.Listeners) == 0:
		return codeInvalidRegistration, "no listener"
	}
	for _, f := range req.Features {
		level := c.spec.Feature(f.Name)
		if level != 0 && (level < f.MinSupportedVersion || level > f.MaxSupportedVersion) {
			return codeUnsupportedVersion, "it does not support the cluster's level of " + f.Name
		}
	}
	for b := range c.spec.Brokers() {
		if b.ID != req.BrokerID && slices.ContainsFunc(b.LogDirs, func(d [16]byte) bool { return slices.Contains(req.LogDirs, d) }) {
			return codeInvalidRegistration, "its data directory is a copy of broker " + BrokerResource(b.ID).Name + "'s"
		}
	}
	// The process that runs this code is the newest life of its id, for it holds the data directory. Any other may have
	// an elder that still holds a lease, or that is alive and well while somebody was started with its id by mistake.
	if req.BrokerID == c.settings.NodeID {
		if req.IncarnationID != c.settings.Incarnation {
			return codeDuplicateRegistration, "it is the id of the active controller"
		}
	} else if l := c.life(req.BrokerID); old != nil && l != nil {
		mayServe := c.call.now < l.heard.Add(c.leaseOut())
		if mayServe && !(old.Fenced && l.closed) {
			return codeDuplicateRegistration, "another process with this id was heard just now"
		}
	}
	return codeNone, ""
}

// unregisterBroker forgets a broker that will not come back.
func (c *Controller) unregisterBroker(req *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	b := c.spec.Broker(req.BrokerID)
	fail := func(code int16, why string) *kmsg.UnregisterBrokerResponse {
		resp.ErrorCode, resp.ErrorMessage = code, &why
		return resp
	}
	if b == nil {
		return fail(codeBrokerIDNotRegistered, "broker "+BrokerResource(req.BrokerID).Name+" is not registered")
	}
	if !b.Fenced { // it may hold a lease
		return fail(codeInvalidRequest, "broker "+BrokerResource(req.BrokerID).Name+" is alive; stop it first")
	}
	c.emit(&UnregisterBrokerRecord{ID: b.ID, Epoch: b.Epoch})
	for _, e := range c.spec.Config(BrokerResource(b.ID)) {
		c.emit(&ConfigRecord{BrokerResource(b.ID), config.Change{Name: e.Name}})
	}
	c.dropLife(b.ID)
	return resp
}
