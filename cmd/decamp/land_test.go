package main

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble/land"
)

func TestWriteLandEnd(t *testing.T) {
	for _, tc := range []struct {
		end  land.End
		want []string
	}{
		{land.End{}, []string{"No file was received."}},
		{land.End{Files: 1, Bytes: 3 << 30}, []string{"Received 1 file, 3 GiB. It is on the medium."}},
		{land.End{Files: 2, Bytes: 1 << 20, Open: []string{"web01/web01-flat.vmdk"}, Mounts: []string{"10.0.0.7"}}, []string{
			"Received 2 files, 1 MiB.", "Incomplete: web01/web01-flat.vmdk", "Host 10.0.0.7 still has the datastore mounted.",
		}},
	} {
		var b strings.Builder
		if err := writeLandEnd(&b, tc.end); err != nil {
			t.Fatal(err)
		}
		mustContain(t, b.String(), tc.want...)
	}
}
