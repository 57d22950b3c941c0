package initramfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

// clean takes off what archives may have before a name.
func clean(name string) string { return strings.TrimLeft(strings.TrimPrefix(name, "./"), "/") }

// Unpack returns a kernel's module, which may be packed, of limit bytes at most.
func Unpack(b *budget.Budget, data []byte, limit int64) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("\x7fELF")) {
		return data, nil
	}
	how, err := methodOf(data[:min(6, len(data))])
	if err != nil {
		return nil, err
	}
	t := &tools{budget: b}
	defer t.close()
	plain, err := how.open(t, bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, err
	}
	if err := b.Unpack(limit); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(plain, limit+1))
	if err == nil && int64(len(out)) > limit {
		err = fmt.Errorf("more than %d bytes unpacked", limit)
	}
	return out, err
}
