package oncrpc

import "testing"

// A call that is executed twice, because the first execution had no reply or is too old, keeps its
// newer reply as long as any other call.
func TestCacheKeepsNewestReplies(t *testing.T) {
	from := new(conn)
	for _, tt := range []struct {
		name  string
		reply []byte // reply of the first execution
		old   bool   // the first execution was longer ago than replyLifetime
	}{
		{"no reply", nil, false},
		{"too old", []byte("too old"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCache(3)
			execute := func(xid uint32, reply []byte) *cacheEntry {
				t.Helper()
				e, first := c.begin(cacheKey{xid: xid}, from)
				if !first {
					t.Fatalf("call %d is a repetition", xid)
				}
				c.finish(e, reply)
				return e
			}
			repeat := func(xid uint32, want string) {
				t.Helper()
				e, first := c.begin(cacheKey{xid: xid}, from)
				if first {
					t.Fatalf("the reply of call %d is lost", xid)
				}
				if string(e.reply) != want {
					t.Errorf("call %d has the reply %q, want %q", xid, e.reply, want)
				}
			}

			e := execute(1, tt.reply)
			if tt.old {
				e.at = e.at.Add(-replyLifetime)
			}
			execute(2, []byte("b"))
			execute(1, []byte("a"))
			execute(3, []byte("c")) // overwrites the first execution of call 1
			repeat(1, "a")
			repeat(2, "b")
			repeat(3, "c")
			execute(4, []byte("d")) // overwrites call 2
			repeat(1, "a")
			execute(2, []byte("b again")) // overwrites the second execution of call 1
			execute(1, []byte("a again"))
			if len(c.entries) != 3 {
				t.Errorf("%d entries in a cache of 3", len(c.entries))
			}
		})
	}
}
