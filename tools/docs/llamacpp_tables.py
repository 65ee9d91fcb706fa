KIND = "llamacpp-real"
