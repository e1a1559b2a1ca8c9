package controller

import (
	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs answers DescribeConfigs from the image, on the broker nodeID whose static configuration is given.
func DescribeConfigs(im *Image, nodeID int32, static config.Values, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	return req.ResponseKind().(*kmsg.DescribeConfigsResponse)
}

// ListConfigResources answers ListConfigResources from the image.
func ListConfigResources(im *Image, req *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	return req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
}

// ErrorResponse returns the answer to req that says errorCode for all it asks, or nil if it is no request of the controller's.
func ErrorResponse(req kmsg.Request, errorCode int16) kmsg.Response { return nil }

// CheckTopicName reports in words what is wrong with a topic's name, or "" if nothing is.
func CheckTopicName(name string) string { return "" }
