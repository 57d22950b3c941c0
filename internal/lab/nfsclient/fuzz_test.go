package nfsclient

import (
	"testing"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// Arbitrary replies of a server are refused, or give valid results.
func FuzzReplies(f *testing.F) {
	f.Add(uint32(procRead), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4})
	f.Add(uint32(procReadDir), append(make([]byte, 16), 0, 0, 0, 0, 0, 0, 0, 1))
	f.Add(uint32(procGetAttr), make([]byte, 88))
	f.Fuzz(func(t *testing.T, proc uint32, reply []byte) { fuzzReply(t, proc, reply) })
}

// fuzzReply parses arbitrary bytes as the result of a call.
func fuzzReply(t *testing.T, proc uint32, reply []byte) {
	t.Helper()
	var a Attr
	var p page
	var h Handle
	ok := map[uint32]func(*xdr.Decoder){
		procGetAttr: readAttrInto(&a),
		procLookup: func(x *xdr.Decoder) {
			h = readHandle(x)
			readPostOp(x)
			readPostOp(x)
		},
		procReadDir: p.readFrom,
	}[proc]
	if ok == nil {
		ok = ignoreWcc
	}
	r := request{proc: proc, ok: ok, failed: ignoreWcc}
	if r.readResult(xdr.NewDecoder(reply)) != nil {
		return
	}
	if proc == procGetAttr && (a.Type < Regular || a.Type > lastType) {
		t.Errorf("type %d", a.Type)
	}
	if proc == procLookup && (h == "" || len(h) > maxHandleV3) {
		t.Errorf("handle of %d bytes", len(h))
	}
	if len(p.entries) > len(reply)/28 { // minimum size of an entry
		t.Errorf("%d entries from %d bytes", len(p.entries), len(reply))
	}
}
