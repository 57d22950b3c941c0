package nfs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
)

// maxRecord is the longest call: a WRITE with its header, handle and credentials.
const maxRecord = maxTransfer + 4<<10

// Server is an NFSv3 and MOUNT v3 server: it answers the programs on its listeners. The
// procedures are in types of their own, which share the exports and the open files.
//
// Locks are taken in this order: a node's changing (of two folders, that with the lower inode
// number first), a node's opening, an export's finding, an export's mu. The mutexes of files,
// graves and mountd come last: none of the others is taken while one of them is held.
type Server struct {
	exports *exportTable
	files   *fileCache
	mountd  *mountd

	rpc   *oncrpc.Server
	admit func(netip.Addr) bool
	log   *slog.Logger

	verifier uint64

	ctx     context.Context // ended by Close
	cancel  context.CancelFunc
	serving sync.WaitGroup
}

// New opens the exports. It starts nothing; see Serve.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		exports: &exportTable{byID: make(map[uint64]*export)},
		files:   newFileCache(), admit: o.Admit, log: o.Log, verifier: o.Verifier,
	}
	for _, e := range o.Exports {
		if err := s.exports.add(e, o.Boot); err != nil {
			return nil, errors.Join(err, s.closeAll())
		}
	}
	if len(s.exports.list) == 0 {
		return nil, fault.New(fault.Invalid, "an NFS server without an export").WithHint("name a folder to export")
	}
	s.mountd = &mountd{exports: s.exports, log: o.Log}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.rpc = oncrpc.NewServer(oncrpc.Options{
		Programs: []*oncrpc.Program{nfsProcedures(o, s.exports, s.files), s.mountd.newProgram()},
		Admit:    o.Admit, MaxRecord: maxRecord, Log: o.Log,
	})
	return s, nil
}

// Serve answers NFS and MOUNT on a listener until Close or the end of ctx, and returns nil
// then. It closes the listener. It may be called for several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.serving.Add(1)
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	return s.rpc.Serve(ctx, l)
}

// Forget makes the server ask Export.Open again for the file of that name, relative to the
// export, and closes what it has open of it. A handle of a file that was moved out of the
// export is stale from then on: call it after that.
func (s *Server) Forget(export, name string) error {
	x := s.exports.byPath(export)
	if x == nil {
		return fault.New(fault.NotFound, "there is no export %s", export)
	}
	name = strings.Trim(path.Clean("/"+name), "/")
	var errs []error
	for _, n := range x.nodesNamed(name) {
		errs = append(errs, s.files.forget(n))
	}
	return errors.Join(errs...)
}

// Verifier returns the write verifier.
func (s *Server) Verifier() uint64 { return s.verifier }

// Close ends all connections, waits for the calls in work, and closes every Content. It
// commits nothing: that is for those who gave the Contents.
func (s *Server) Close() error {
	s.cancel()
	s.serving.Wait()
	return s.closeAll()
}

func (s *Server) closeAll() error {
	err := s.files.close()
	s.exports.close()
	return err
}
