"""What each scene may be asked for: parameters as structs, their limits, and who may not pass.

Pure, and used on both sides: by the door before anything is appended, and by the runner, which
trusts no log.
"""
