// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Folder is a folder that the command line names. Others may have written its content: nothing in it leads out of it, and no symbolic
// link is followed.
type Folder struct {
	Path string
	root *os.Root
}

// OpenFolder opens a folder. The path itself may be a symbolic link.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{Path: path, root: root}, nil
}

// Close closes the folder.
func (f *Folder) Close() { _ = f.root.Close() }

// WalkFiles calls do for each file below the folder, by its path in it. It does not follow symbolic links.
func (f *Folder) WalkFiles(do func(name string, mode fs.FileMode) error) error {
	return fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return do(filepath.FromSlash(name), d.Type())
	})
}

// DisplayPath returns the path of a file for messages.
func (f *Folder) DisplayPath(name string) string { return filepath.Join(f.Path, name) }

// CheckRegular returns an error for a file that is not regular. It says what to do about it.
func (f *Folder) CheckRegular(name string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, and links below %s are not followed: put the file or the folder itself there, or remove the link", f.DisplayPath(name), f.Path)
	case !mode.IsRegular():
		return fmt.Errorf("%s is not a regular file: replace it with one, or remove it", f.DisplayPath(name))
	}
	return nil
}

// HasFile reports whether a file exists. A file that is not regular is an error, and so is a symbolic link on the way to it.
func (f *Folder) HasFile(name string) (bool, error) {
	for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
		info, err := f.root.Lstat(parent)
		if err != nil {
			return false, err
		}
		if !info.IsDir() {
			return false, f.CheckRegular(parent, info.Mode())
		}
	}
	info, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.CheckRegular(name, info.Mode())
}

// ReadFile reads a regular file.
func (f *Folder) ReadFile(name string) ([]byte, error) {
	there, err := f.HasFile(name)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, &fs.PathError{Op: "open", Path: f.DisplayPath(name), Err: fs.ErrNotExist}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// ReadDocuments reads the documents of a regular file.
func (f *Folder) ReadDocuments(name string) ([]*Document, error) {
	text, err := f.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseDocuments(f.DisplayPath(name), text)
}

// WriteFile replaces a regular file, or creates it.
func (f *Folder) WriteFile(name string, text []byte) error {
	if _, err := f.HasFile(name); err != nil {
		return err
	}
	made := name + ".new"
	file, err := f.root.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // others may read the files beside it
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.DisplayPath(name), err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(made, name)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.DisplayPath(name), errors.Join(err, f.root.Remove(made)))
	}
	return nil
}
