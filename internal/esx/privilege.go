package esx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// privilegePage is the number of objects per query for privileges.
const privilegePage = 200

// Lacking returns, by privilege, the objects on which the user lacks it, in the order
// of on. All objects must have the type kind. A privilege that the user has on all
// objects is not in the map.
func (s *hostController) Lacking(ctx context.Context, kind inventory.Kind, on []inventory.MoRef, privileges []string) (map[string][]inventory.MoRef, error) {
	lacking := map[string][]inventory.MoRef{}
	if len(on) == 0 || len(privileges) == 0 {
		return lacking, nil
	}
	session, err := s.sessionKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for privileges: %w", classify(err))
	}
	for page := range slices.Chunk(on, privilegePage) {
		if err := s.addLacking(ctx, session, kind, page, privileges, lacking); err != nil {
			return nil, fmt.Errorf("ask for privileges: %w", classify(err))
		}
	}
	return lacking, nil
}

// addLacking queries one page of objects and adds the missing privileges to lacking.
// session is the key of this session.
func (s *hostController) addLacking(ctx context.Context, session string, kind inventory.Kind, on []inventory.MoRef, privileges []string, lacking map[string][]inventory.MoRef) error {
	// The session determines the user whose privileges are checked.
	req := &types.HasPrivilegeOnEntities{This: *s.vim.ServiceContent.AuthorizationManager, SessionId: session, PrivId: privileges}
	for _, ref := range on {
		req.Entity = append(req.Entity, moRef(string(kind), ref))
	}
	res, err := methods.HasPrivilegeOnEntities(ctx, s, req)
	if err != nil {
		return err
	}
	for _, entity := range res.Returnval {
		for _, p := range entity.PrivAvailability {
			if !p.IsGranted {
				lacking[p.PrivId] = append(lacking[p.PrivId], inventory.MoRef(entity.Entity.Value))
			}
		}
	}
	return nil
}

// sessionKey returns the server's key of this session, which differs from its cookie.
func (s *hostController) sessionKey(ctx context.Context) (string, error) {
	var m mo.SessionManager
	if err := s.readProperties(ctx, *s.vim.ServiceContent.SessionManager, &m, "currentSession"); err != nil {
		return "", err
	}
	if m.CurrentSession == nil {
		return "", errors.New("the server did not return the session")
	}
	return m.CurrentSession.Key, nil
}
