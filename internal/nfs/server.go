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

// maxRecord is the longest RPC record in bytes: a WRITE with header, handle and credentials.
const maxRecord = maxTransfer + 4<<10

// Server is an NFSv3 and MOUNT v3 server: it answers the programs on its listeners. The procedures
// belong to separate types, which share the exports and the open files.
//
// Locks are locked in this order: a node's changing (of two folders, the one with the lower inode
// number first), a node's opening, an export's finding, an export's mu. The mutexes of fileCache,
// removedFiles and mountd come last: no other lock is taken while one of them is held.
type Server struct {
	exports *exportTable // exports of Options; does not change
	files   *fileCache   // open files of all exports
	mountd  *mountd      // MOUNT program and the list of mounts

	rpc   *oncrpc.Server        // RPC server of NFS and MOUNT
	admit func(netip.Addr) bool // Options.Admit, for the port mapper
	log   *slog.Logger

	verifier uint64 // write verifier in the replies of WRITE and COMMIT

	ctx     context.Context // context of all listeners; Close cancels it
	cancel  context.CancelFunc
	serving sync.WaitGroup // counts running Serve and Run calls
}

// New opens the exports and returns a server of them. It listens nowhere; see Serve and Run. It fails
// if an export's folder cannot be opened or two have the same path. The caller closes the server.
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
		return nil, fault.New(fault.Invalid, "the NFS server has no export").WithHint("add a folder to export")
	}
	s.mountd = &mountd{exports: s.exports, log: o.Log}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.rpc = oncrpc.NewServer(oncrpc.Options{
		Programs: []*oncrpc.Program{nfsProcedures(o, s.exports, s.files), s.mountd.newProgram()},
		Admit:    o.Admit, MaxRecord: maxRecord, Log: o.Log,
	})
	return s, nil
}

// Serve answers NFS and MOUNT on a listener until Close or the end of ctx, and returns nil then. It
// closes the listener. It may be called for several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.serving.Add(1)
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	return s.rpc.Serve(ctx, l)
}

// Forget closes the file of that name, relative to the export, and makes the server call Export.Open
// again when it is next used. A handle of a file that was moved out of the export is stale from then
// on; call Forget after that. It fails with fault.NotFound for an unknown export.
func (s *Server) Forget(export, name string) error {
	x := s.exports.byPath(export)
	if x == nil {
		return fault.New(fault.NotFound, "export %s does not exist", export)
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

// Close ends all connections, waits for the calls in work, and closes every Content. It does not commit
// them: their owner does that.
func (s *Server) Close() error {
	s.cancel()
	s.serving.Wait()
	return s.closeAll()
}

// closeAll closes the files and the exports. No call may be in work.
func (s *Server) closeAll() error {
	err := s.files.close()
	s.exports.close()
	return err
}
