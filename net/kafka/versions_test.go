package kafka

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flag.Bool("update", false, "write the version table into docs/protocol.md")

const (
	docPath   = "../../docs/protocol.md"
	docBegin  = "<!-- versions:begin (made by go test ./net/kafka -run VersionTable -update) -->\n"
	docEnd    = "<!-- versions:end -->\n"
	docHeader = "# The protocol\n\nLockstep speaks the Kafka protocol in the versions below.\n\n"
)

// TestVersionTableInDocs keeps docs/protocol.md in step with the table.
func TestVersionTableInDocs(t *testing.T) {
	raw, err := os.ReadFile(docPath)
	if os.IsNotExist(err) && *update {
		raw, err = []byte(docHeader+docBegin+docEnd), nil
	}
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), docBegin)
	require.True(t, ok, "docs/protocol.md has no begin marker")
	have, after, ok := strings.Cut(rest, docEnd)
	require.True(t, ok, "docs/protocol.md has no end marker")
	if *update {
		require.NoError(t, os.WriteFile(docPath, []byte(before+docBegin+VersionTable()+docEnd+after), 0o644))
		return
	}
	require.Equal(t, VersionTable(), have, "run: go test ./net/kafka -run VersionTable -update")
}

func TestVersionTableIsSound(t *testing.T) {
	last := int16(-1)
	for _, a := range APIs() {
		key := a.Key.Int16()
		require.Greater(t, key, last, "rows ascend by key")
		last = key
		require.LessOrEqual(t, int16(0), a.Min)
		require.LessOrEqual(t, a.Min, a.Served, a.Key.Name())
		require.LessOrEqual(t, a.Served, a.Max, a.Key.Name())
		require.LessOrEqual(t, a.Max, kmsg.RequestForKey(key).MaxVersion(), a.Key.Name())
	}
}

// TestAdvertisedIsTheTable: what ApiVersions lists is the table, without what only peers may ask.
func TestAdvertisedIsTheTable(t *testing.T) {
	peer := Advertised(true)
	require.Len(t, peer, len(APIs()))
	clients := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range Advertised(false) {
		clients[k.ApiKey] = k
	}
	for i, a := range APIs() {
		require.Equal(t, a.Key.Int16(), peer[i].ApiKey)
		require.Equal(t, []int16{a.Min, a.Max}, []int16{peer[i].MinVersion, peer[i].MaxVersion})
		_, listed := clients[a.Key.Int16()]
		require.Equal(t, !a.Peer, listed, a.Key.Name())
		_, served := Lookup(a.Key.Int16(), false)
		require.Equal(t, !a.Peer, served, a.Key.Name())
	}
}
