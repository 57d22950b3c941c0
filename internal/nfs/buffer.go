package nfs

import "github.com/decamp/decamp/internal/behind"

// Buffer is the memory that the payload of a WRITE is read into.
type Buffer = behind.Buffer
