
# Names come from the store; where it has none, from the script above.
_plumb_names() {
    local -a found
    found=("${(@f)$(plumb __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found[1]" ]]; then
        compadd -a found
    else
        _plumb "$@"
    fi
}
compdef _plumb_names plumb
